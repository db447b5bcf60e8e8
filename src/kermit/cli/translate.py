"""stub"""
def translate() -> None:
    """stub"""
