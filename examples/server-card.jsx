import { useEffect, useState } from "react";

/** What the server of a page answers at a path, asked for three times a second, whether it is away, and how often it was. */
export function useServer(path, first) {
  const [answer, setAnswer] = useState(first);
  const [isAway, setIsAway] = useState(false);
  const [timesAway, setTimesAway] = useState(0);
  useEffect(() => {
    const read = async () => {
      try {
        setAnswer(await (await fetch(path)).json());
        setIsAway(false);
      } catch {
        setIsAway(true);
      }
    };
    if (isAway) setTimesAway((times) => times + 1);
    void read();
    const timer = setInterval(read, 300);
    return () => clearInterval(timer);
  }, [path, isAway]);
  return { answer, isAway, timesAway };
}

/** Says whether the server of a page is there, and what may be tried in either case. */
export function ServerCard({ isAway, up, away, children }) {
  return (
    <div className="card">
      <h2 data-server={isAway ? "away" : "up"}>{isAway ? "The server is away" : "The server is up"}</h2>
      <p className="soft">{isAway ? away : up}</p>
      {children}
    </div>
  );
}
