/** A clock that a test controls. */
export interface TestClock {
  /** The time of the clock, in milliseconds since 1970; undefined for the real time. */
  now: number | undefined;
  /** The current time of the clock. */
  time: () => number;
}

export function testClock(now?: number): TestClock {
  const clock: TestClock = { now, time: () => clock.now ?? Date.now() };
  return clock;
}
