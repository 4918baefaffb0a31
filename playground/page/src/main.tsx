import { render } from "preact";
import { load } from "./engine";
import "./style.css";

const root = document.getElementById("app")!;
load()
  // which asks the engine for its scenarios at once
  .then(() => import("./App"))
  .then(
    ({ App }) => {
      root.replaceChildren();
      render(<App />, root);
    },
    (error: unknown) => {
      root.textContent = `The engine could not be loaded: ${error}. Serve the page over HTTP: roce playground`;
    },
  );
