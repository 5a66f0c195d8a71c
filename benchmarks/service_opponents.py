"""MLflow's or BentoML's server around transformers' pipeline of a model, one worker, as their documentation has it.

    python service_opponents.py {MLflow,BentoML} FOLDER PORT

FOLDER has the model in `model`. It runs in a Python that has them, so it imports nothing of this project.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

BENTO = """
import bentoml
from transformers import pipeline

@bentoml.service(workers=1, traffic={{"timeout": 120}})
class Classifier:
    def __init__(self):
        self.pipeline = pipeline("text-classification", model={model!r}, tokenizer={model!r}, top_k=None)

    @bentoml.api(batchable=True, max_batch_size=64, max_latency_ms=5000)
    def classify(self, texts: list[str]) -> list[list[dict]]:
        return self.pipeline(texts, batch_size=32)
"""


def main() -> None:
    name, folder, port = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    model = str(folder / "model")
    bin = Path(sys.executable).parent
    os.environ["PATH"] = f"{bin}{os.pathsep}{os.environ['PATH']}"  # MLflow starts uvicorn by its name
    if name == "BentoML":
        (folder / "service.py").write_text(BENTO.format(model=model))
        command = [str(bin / "bentoml"), "serve", "service:Classifier", "--port", port, "--working-dir", str(folder)]
    else:
        import mlflow
        from transformers import pipeline

        own = pipeline("text-classification", model=model, tokenizer=model, top_k=None)
        mlflow.transformers.save_model(own, str(folder / "saved"), pip_requirements=["transformers"])
        command = [str(bin / "mlflow"), "models", "serve", "-m", str(folder / "saved"), "-p", port]
        command += ["--env-manager", "local", "--workers", "1"]
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
