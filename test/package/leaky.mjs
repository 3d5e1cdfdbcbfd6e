// A report of `everyInterruption` names the user's own line, also where the kit is one file among many in `dist`.
import { everyInterruption } from "cadenza/testing";
import { check, leaky } from "./leaky-agent.cjs";

check(await everyInterruption(leaky, "Go"));
