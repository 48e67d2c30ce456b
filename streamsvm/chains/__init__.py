"""Loss, block solvers and predictions of the chain-structured SVM, which predicts label sequences."""
