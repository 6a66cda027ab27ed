import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { isMeasuring } from './measures.ts';

/** The peak memory of the process during `work`, minus its memory before, in MiB. Only on Linux; 0 without measures. */
export async function peakGrowth(pid: number, work: () => Promise<void>): Promise<number> {
  if (!isMeasuring || !existsSync(`/proc/${pid}/clear_refs`)) {
    await work();
    return 0;
  }
  writeFileSync(`/proc/${pid}/clear_refs`, '5');
  const before = memoryOf(pid, 'VmRSS');
  await work();
  return memoryOf(pid, 'VmHWM') - before;
}

function memoryOf(pid: number, field: 'VmRSS' | 'VmHWM'): number {
  const kibibytes = new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
  return Number(kibibytes![1]) / 1024;
}
