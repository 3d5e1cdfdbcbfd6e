import { isLost } from "./refusals.ts";

const MAX_MOVES = 5;

/** Does something to a run that may change hands meanwhile: then it is done again, wherever the run is now. */
export async function unlessLost<T>(act: () => Promise<T>): Promise<T> {
  for (let move = 1; ; move++) {
    try {
      return await act();
    } catch (error) {
      if (!isLost(error) || move === MAX_MOVES) throw error;
    }
  }
}
