import { defineAgent } from "cadenza";
import { createFakeClock, drive, everyCrash, everyInterruption, record } from "cadenza/testing";

const echo = defineAgent("echo", (input) => input);
export const clock = createFakeClock();
export const begin = () => drive(echo, "Hello");
export const ask = async () => begin().until("await");
export const cassette = async () => record(begin());
export const crashes = () => everyCrash(echo, "Hello");
export const interruptions = () => everyInterruption(echo, "Hello");
