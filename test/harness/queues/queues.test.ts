import { expect, test as it } from "vitest";
import { idealSeconds } from "./queues.ts";

const limits = { max: 2, count: 100, perMs: 30_000, work: 20 };

it.each([
  {
    title: "the first customer's rate, where the machine is never full",
    runs: 400,
    customers: 1,
    first: 400,
    capacity: 1e6,
    seconds: 91,
  },
  {
    title: "its slots, where its rate lets all in",
    runs: 100,
    customers: 1,
    first: 100,
    capacity: 1e6,
    seconds: 1,
  },
  {
    title: "the machine, where all customers have as much",
    runs: 2_000,
    customers: 100,
    first: 20,
    capacity: 100,
    seconds: 20,
  },
  {
    title: "the machine, and then the rate of the customer that has more than the others",
    runs: 20_000,
    customers: 1_000,
    first: 400,
    capacity: 200,
    seconds: 189,
  },
])("the ideal time is that of $title", ({ seconds, capacity, title: _, ...runs }) => {
  expect(Math.round(idealSeconds({ ...runs, ...limits }, capacity))).toBe(seconds);
});
