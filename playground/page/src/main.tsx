import { render } from "preact";
import { App } from "./App";
import { load } from "./engine";
import "./style.css";

const root = document.getElementById("app")!;
load().then(
  () => {
    root.replaceChildren();
    render(<App />, root);
  },
  (error: unknown) => {
    root.textContent = `The engine could not be loaded: ${error}. Serve the page over HTTP: roce playground`;
  },
);
