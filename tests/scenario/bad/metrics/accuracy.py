class Constant:
    def update(self, outputs, targets):
        pass

    def value(self):
        return float("nan")


top1 = loss = Constant
