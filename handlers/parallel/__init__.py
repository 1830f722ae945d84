"""One model in several processes: parts of its matrices, or some of its layers, in each."""
