/** What a fault has done in all its tries. */
export interface FaultResult {
  tries: number;
  /** Pushes that were answered with success. */
  acknowledged: number;
  /** Acknowledged pushes that are missing afterwards, or have other bytes. */
  lost: number;
  /** Content that is listed but cannot be read whole. */
  halfVisible: number;
  /** The longest time from the fault until the service was ready again, milliseconds. */
  recoveryMs: number;
  notes?: string;
}

/** A module in this folder that exports `fault` is a row of `npm run test:faults`. */
export interface Fault {
  name: string;
  run(options: { tries: number }): Promise<FaultResult>;
}
