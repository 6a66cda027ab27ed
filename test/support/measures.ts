/**
 * Whether tests measure time and memory. A run of tests with changed or instrumented source does not, because its figures say
 * nothing about the change.
 */
export const isMeasuring = process.env['ENTREPOT_TEST_MEASURES'] !== 'no';

/** The processor time of this process in its own code during `work`, in microseconds; 0 without measures. */
export async function processorTime(work: () => unknown): Promise<number> {
  const before = process.cpuUsage();
  await work();
  return isMeasuring ? process.cpuUsage(before).user : 0;
}

/** Bytes of all buffers that are in use; 0 without measures. */
export function bytesOfBuffers(): number {
  return isMeasuring ? process.memoryUsage().arrayBuffers : 0;
}
