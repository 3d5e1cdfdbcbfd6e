import { defineAgent } from "cadenza";
import {
  createFakeClock,
  drive,
  everyCrash,
  everyInterruption,
  mockModel,
  record,
  storeContract,
} from "cadenza/testing";

const echo = defineAgent("echo", (input) => input);
export const checks = storeContract;
export const clock = createFakeClock();
export const begin = () => drive(echo, "Hello");
export const cassette = async () => record(begin());
export const crashes = () => everyCrash(echo, "Hello");
export const interruptions = () => everyInterruption(echo, "Hello");
export const model = mockModel(["Hello."]);
