"""The paper's learning rate (Section 5.3)."""


def learning_rate(step: int, d_model: int, warmup_steps: int, scale: float = 1.0) -> float:
    """scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5).

    Args:
        step: update, counted from 1.
        d_model: width of the model.
        warmup_steps: updates of linear rise; the peak is at this step.
        scale: factor on the whole schedule; 1 in the paper.
    """
    return float(scale * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))
