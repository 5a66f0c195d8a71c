"""Two checkouts train the same recipes: are the stages' tensors and the answers the same, in bits?"""
