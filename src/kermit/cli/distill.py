"""stub"""
def distill() -> None:
    """stub"""
