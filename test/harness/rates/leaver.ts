import { never } from "../promises.ts";
import { createMany, open } from "./agents.ts";

/* A process that creates runs and leaves them unfinished. */
const [what, file = "", count, until = "0"] = process.argv.slice(2);
const { runtime } = open(file, "hangs");
await createMany(runtime, what === "asks" ? "asks" : "steps", Number(count), until);
process.send?.("left");
setInterval(() => undefined, 1_000);
await never();
