/** A change that no test can notice, because the program does the same with it. */
export interface Equivalent {
  file: string;
  /** The changed lines, without the space around them, as the report shows them. */
  was: string;
  becomes: string;
  reason: string;
}

export const equivalent: Equivalent[] = [];
