import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { execute, requiredCommand } from '../../../test/support/clients/clients.ts';
import type { Bench } from '../bench.ts';
import { pushImage, pushPackage } from '../content.ts';
import { mebibyte, peakWhile } from '../processes.ts';
import { note, type Sample } from '../report.ts';
import { anonymousServer, feedOf } from './restore.ts';

const main = join(import.meta.dirname, '../../../bin/entrepot.js');
const layer = 20 * mebibyte;

/** What a bundle costs beside `tar` with sha256 over the same bytes, and what one costs that brings a hundredth. */
export async function bundles(bench: Bench): Promise<void> {
  const images = bench.quick ? 25 : 250;
  const packages = bench.quick ? 100 : 1000;
  const at = (name: string): string => join(bench.folder, name);
  const upstream = await anonymousServer(bench, 'bundles-upstream');
  const registry = { name: 'registry.test', kind: 'registry', url: upstream.url, allowPrivateNetwork: true };
  const upstreams = JSON.stringify([feedOf(upstream), registry]);
  const nowhere = JSON.stringify([
    { name: 'upstream.test', kind: 'nuget', url: 'http://127.0.0.1:9/v3/index.json', mode: 'offline' },
    { name: 'registry.test', kind: 'registry', url: 'http://127.0.0.1:9/', mode: 'offline' },
  ]);
  const seconds: Record<string, number[]> = {};
  const peaks: Record<string, number[]> = {};
  const run = async (site: string, name: string, ...words: string[]): Promise<void> => {
    const env = {
      PATH: process.env['PATH'],
      ENTREPOT_DATA: at(`bundles-${site}`),
      ENTREPOT_UPSTREAMS: site === 'near' ? upstreams : nowhere,
    };
    const startedAt = performance.now();
    // Its first line has the flags of Node.
    const child = spawn(main, ['bundle', ...words], { stdio: ['ignore', 'ignore', 'pipe'], env });
    const { peak, errors } = await peakWhile(child);
    if (child.exitCode !== 0) throw new Error(`bundle ${words.join(' ')} ended with ${child.exitCode}: ${errors}`);
    (seconds[name] ??= []).push((performance.now() - startedAt) / 1000);
    (peaks[name] ??= []).push(peak / mebibyte);
  };
  const names: string[] = [];
  const push = async (kind: string, count: { images: number; packages: number }): Promise<void> => {
    for (let index = 0; index < count.images; index += 1) {
      await pushImage(upstream, `${kind}/image-${index}`, randomBytes(layer));
      names.push(`registry.test/${kind}/image-${index}:v1`);
    }
    for (let index = 0; index < count.packages; index += 1) {
      await pushPackage(upstream, { id: `Bench.${kind}.N${index}`, version: '1.0.0', payloadBytes: 50_000 });
      names.push(`Bench.${kind}.N${index}@1.0.0`);
    }
    await writeFile(at('bundles-names.txt'), names.join('\n'));
  };

  await push('first', { images, packages });
  for (const [site, key, role] of [
    ['near', 'far.key', 'receipts'],
    ['far', 'near.key', 'bundles'],
  ] as const) {
    const other = site === 'near' ? 'far' : 'near';
    await run(other, 'keygen', 'keygen', '--to', at(key));
    await run(site, 'trust', 'trust', 'add', `${at(key)}.pub`, '--role', role);
  }
  const create = (name: string, to: string, ...words: string[]) =>
    run('near', name, 'create', at('bundles-names.txt'), '--to', at(to), '--key', at('near.key'), ...words);
  await create('fetch and create', 'bundles-fetched');
  const files = await readdir(at('bundles-fetched'));
  const bytes = await sizeOf(at('bundles-fetched'));
  const tar = async (): Promise<void> => {
    const paths = files.map((file) => `'${join(at('bundles-fetched'), file)}'`).join(' ');
    const script = `tar -cf - ${paths} | tee '${at('bundles-copied.tar')}' | sha256sum; sync '${at('bundles-copied.tar')}'`;
    const startedAt = performance.now();
    const { code, stderr } = await execute(requiredCommand('bash'), ['-c', script]);
    if (code !== 0) throw new Error(stderr);
    (seconds['tar and sha256'] ??= []).push((performance.now() - startedAt) / 1000);
  };
  for (let round = 0; round < bench.rounds; round += 1) {
    await tar();
    await create('create', `bundles-whole-${round}`);
  }
  const locked = Array.from({ length: packages / 2 }, (_, at) => [
    `Bench.first.N${at}`,
    { type: 'Direct', requested: '[1.0.0, )', resolved: '1.0.0' },
  ]);
  const lock = { version: 1, dependencies: { 'net10.0': Object.fromEntries(locked) } };
  await writeFile(at('packages.lock.json'), JSON.stringify(lock));
  await run('far', 'verify', 'verify', at('bundles-whole-0'), '--for', at('packages.lock.json'));
  await tar();
  await run('far', 'import', 'import', at('bundles-whole-0'));
  await run('far', 'receipt', 'receipt', '--to', at('bundles-receipt'), '--key', at('far.key'));
  await push('second', { images: Math.max(1, images / 100), packages: packages / 100 });
  await create('fetch and create a hundredth', 'bundles-more-0', '--against', at('bundles-receipt'));
  await create('create a hundredth', 'bundles-more-1', '--against', at('bundles-receipt'));
  await run('far', 'import a hundredth', 'import', at('bundles-more-1'));

  const mib = Math.round(bytes / mebibyte);
  const more = await sizeOf(at('bundles-more-1'));
  const title = `bundle of ${mib} MiB, ${images} images and ${packages} packages`;
  note({ title, unit: 's', bar: '≤ 1.43 ×', samples: samplesOf(seconds, 'create', 'tar and sha256') });
  note({ title, unit: 's', bar: '≤ 1.43 ×', samples: samplesOf(seconds, 'import', 'tar and sha256') });
  note({ title: 'a hundredth more, time', unit: 's', samples: samplesOf(seconds, 'create a hundredth', 'create') });
  note({ title: 'a hundredth more, time', unit: 's', samples: samplesOf(seconds, 'import a hundredth', 'import') });
  const ofLock = `a lock file of ${packages / 2} packages`;
  note({ title: ofLock, unit: 's', bar: '≤ 5', samples: samplesOf(seconds, 'verify') });
  const sizes = [
    { subject: 'a hundredth', values: [more / mebibyte] },
    { subject: 'whole', values: [bytes / mebibyte] },
  ];
  note({ title: 'a hundredth more, size', unit: 'MiB', samples: sizes });
  note({
    title: 'peak memory',
    unit: 'MiB',
    bar: '≤ 250',
    samples: samplesOf(peaks, 'create', 'import', 'fetch and create'),
  });
}

function samplesOf(values: Record<string, number[]>, ...which: string[]): Sample[] {
  return which.map((subject) => ({ subject, values: values[subject]! }));
}

async function sizeOf(folder: string): Promise<number> {
  let bytes = 0;
  for (const file of await readdir(folder)) bytes += (await stat(join(folder, file))).size;
  return bytes;
}
