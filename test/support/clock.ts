/** The clock that a test gives to what it tests. */
export interface TestClock {
  /** Milliseconds since 1970 at which the clock stands; undefined for the real time. */
  now: number | undefined;
  /** What the clock says. */
  time: () => number;
}

export function testClock(now?: number): TestClock {
  const clock: TestClock = { now, time: () => clock.now ?? Date.now() };
  return clock;
}
