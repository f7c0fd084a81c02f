class Net:
    def __init__(self, image_shape, classes):
        pass
