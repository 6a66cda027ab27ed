/** What a fault has done in all its tries. */
export interface FaultResult {
  tries: number;
  /** Pushes that were answered with success. */
  acknowledged: number;
  /** Acknowledged pushes that are missing afterwards, or have other bytes. */
  lost: number;
  /** Content that is listed but cannot be read whole. */
  halfVisible: number;
  /**
   * The longest time, in milliseconds, until the service was ready again: from the fault, or from its end if the service
   * cannot work before.
   */
  recoveryMs: number;
  notes?: string;
}

export interface FaultOptions {
  tries: number;
  /** Whether the row must be quick: it may wait less, or leave out slow variants. */
  short: boolean;
}

/** A module in this folder that exports `fault` is a row of `npm run test:faults`. */
export interface Fault {
  name: string;
  run(options: FaultOptions): Promise<FaultResult>;
}
