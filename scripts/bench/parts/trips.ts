import { join } from 'node:path';
import { startS3, type FakeS3 } from '../../../test/support/s3.ts';
import type { Bench } from '../bench.ts';
import { putBlob, pushImage, pushPackage, type PushedImage } from '../content.ts';
import { openCounts, type EngineCounts } from '../counts.ts';
import type { Peer } from '../processes.ts';
import { median, note } from '../report.ts';

/** Requests of which the processor time is the mean, and how many of them run at the same time. */
const [repeated, atOnce] = [2000, 8];

/** Images and packages, so that each request can be one for content that was not read before. */
const many = 20;

interface Trips extends EngineCounts {
  objects: number;
}

/**
 * The round trips of one request in a cluster: statements of the database, commands of Redis and requests to S3. The median
 * of many requests, because work in the background makes some too.
 */
export async function trips(bench: Bench): Promise<void> {
  const place = await bench.shared('trips');
  const ends: (() => unknown)[] = [];
  const s3 = await startS3({ teardown: (end: () => unknown) => void ends.push(end) });
  try {
    const settings = settingsOf(s3);
    const writer = await bench.serve({ ...place, data: join(bench.folder, 'trips-one') }, { name: 'one', settings });
    const reader = await bench.serve({ ...place, data: join(bench.folder, 'trips-two') }, { name: 'two', settings });
    const count = await counterOf(place.databaseUrl, place.settings['ENTREPOT_REDIS_URL']!, s3, ends);
    const report = async (title: string, runs: (() => Promise<unknown>)[]) => {
      const found: Trips[] = [];
      for (const run of runs) found.push(await count(run));
      const of = (key: keyof Trips) => found.map((each) => each[key]);
      const samples = (['statements', 'commands', 'objects'] as const).map((key) => ({
        subject: key,
        values: of(key),
      }));
      note({ title: `round trips: ${title}`, unit: 'per request', samples });
    };

    const images: PushedImage[] = [];
    await report(
      'push of an image',
      times((number) => async () => images.push(await pushImage(writer, `team/app${number}`))),
    );
    await report(
      'push of a blob',
      times((number) => () => putBlob(writer, 'team/blobs', Buffer.from(`blob ${number}`))),
    );
    await report(
      'push of a package',
      times((number) => () => pushPackage(writer, { id: `Trip${number}`, version: '1.0.0', payloadBytes: 20_000 })),
    );
    for (const [title, path] of [
      ['manifest', (number: number) => `/v2/team/app${number}/manifests/v1`],
      ['blob', (number: number) => `/v2/team/app${number}/blobs/${images[number]!.parts[1]!.digest}`],
      ['nupkg', (number: number) => `/v3/package/trip${number}/1.0.0/trip${number}.1.0.0.nupkg`],
      ['registration index', (number: number) => `/v3/registration-gz-semver2/trip${number}/index.json`],
      ['flat container index', (number: number) => `/v3/package/trip${number}/index.json`],
    ] as const) {
      await report(
        `${title}, first read by an instance`,
        times((number) => () => read(reader, path(number))),
      );
      await report(
        `${title}, again later`,
        times((number) => () => read(reader, path(number))),
      );
      await read(reader, path(0));
      await report(
        `${title}, hot`,
        times(() => () => read(reader, path(0))),
      );
      // The first requests are for the compiler of the runtime.
      await repeat(repeated, () => read(reader, path(0)));
      await noteCpu(`${title}, hot`, reader, repeated, () => read(reader, path(0)));
    }
    let next = many;
    const push = async () => pushImage(writer, `team/app${(next += 1)}`);
    await repeat(100, push);
    await noteCpu('push of an image', writer, 200, push);
  } finally {
    for (const end of ends.toReversed()) await end();
  }
}

async function repeat(count: number, run: () => Promise<unknown>): Promise<void> {
  let left = count;
  const worker = async () => {
    while (left-- > 0) await run();
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
}

/** The processor time of the instance alone, without the database, Redis and S3. */
async function noteCpu(title: string, peer: Peer, count: number, run: () => Promise<unknown>): Promise<void> {
  const before = peer.cpu();
  await repeat(count, run);
  const values = [((peer.cpu() - before) * 1e6) / count];
  note({ title: `processor time: ${title}`, unit: 'µs per request', samples: [{ subject: peer.name, values }] });
}

function times<T>(run: (number: number) => T): T[] {
  return Array.from({ length: many }, (_, number) => run(number));
}

function settingsOf({ endpoint, bucket }: FakeS3): Record<string, string> {
  const names = {
    ENDPOINT: endpoint,
    BUCKET: bucket,
    FORCE_PATH_STYLE: 'true',
    ACCESS_KEY_ID: 'key',
    SECRET_ACCESS_KEY: 'secret',
  };
  const s3 = Object.entries(names).map(([name, value]) => [`ENTREPOT_STORAGE_S3_${name}`, value]);
  return { ENTREPOT_STORAGE_DRIVER: 's3', ...Object.fromEntries(s3) };
}

async function read(peer: Peer, path: string): Promise<void> {
  const response = await fetch(peer.url + path, { headers: peer.headers });
  await response.arrayBuffer();
  if (response.status !== 200) throw new Error(`${path}: ${response.status}`);
}

/** Counts what all servers of this run ask for while `run` runs, without what the counting itself needs. */
async function counterOf(
  databaseUrl: string,
  redisUrl: string,
  s3: FakeS3,
  ends: (() => unknown)[],
): Promise<(run: () => Promise<unknown>) => Promise<Trips>> {
  const counts = await openCounts(databaseUrl, redisUrl);
  ends.push(() => counts.close());
  const now = async (): Promise<Trips> => ({ ...(await counts.read()), objects: s3.requests.length });
  const difference = async (run: () => Promise<unknown>): Promise<Trips> => {
    const before = await now();
    await run();
    const after = await now();
    return {
      statements: after.statements - before.statements,
      commands: after.commands - before.commands,
      objects: after.objects - before.objects,
    };
  };
  const idle: Trips[] = [];
  for (let round = 0; round < many; round += 1) idle.push(await difference(() => Promise.resolve()));
  const own = (key: keyof Trips) => median(idle.map((each) => each[key]));
  const noise = { statements: own('statements'), commands: own('commands'), objects: own('objects') };
  return async (run) => {
    const found = await difference(run);
    return {
      statements: found.statements - noise.statements,
      commands: found.commands - noise.commands,
      objects: found.objects - noise.objects,
    };
  };
}
