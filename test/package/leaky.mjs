// A report of `everyInterruption` names the user's own line, also with the built kit.
import { everyInterruption } from "cadenza/testing";
import { check, leaky } from "./leaky-agent.cjs";

check(await everyInterruption(leaky, "Go"));
