"""Behind an envelope that hands over lists of numbers: the sum of each."""


def handle(data, context):
    return None if data is None else [sum(numbers) for numbers in data]
