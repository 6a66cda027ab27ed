import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { hexOf, type Digest } from '../../../src/runtime/digest.ts';
import { Bucket } from '../../../src/storage/drivers/s3/bucket.ts';
import { startSwift, swiftCommands } from '../../../test/support/processes/swift.ts';
import { ensureCommands } from '../../packages.ts';
import type { Bench } from '../bench.ts';
import { drain, push } from '../bodies.ts';
import { putBlob } from '../content.ts';
import { startDockerRegistry } from '../peers.ts';
import { mebibyte, peaks, type Peer } from '../processes.ts';
import { compare, note } from '../report.ts';

const name = 'artifacts';
const pushed = 100e6;
/** Bytes and number of the parts of an upload with the SDK alone. */
const part = 32 * mebibyte;
const partsAtOnce = 4;

/** Content in S3 (Swift): reads of local copies and of S3 itself, and pushes, each against the fastest way without this server. */
export async function s3(bench: Bench): Promise<void> {
  await ensureCommands(swiftCommands);
  const swift = await startSwift();
  if (!swift) {
    process.stdout.write('s3: Swift is not installed\n');
    return;
  }
  const access = { ...swift, bucket: name, forcePathStyle: true };
  const bucket = await Bucket.open({ ...access, redirect: true, times: { attempts: 10, pause: 1000 } });
  try {
    await bucket.run(() => bucket.client.send(new bucket.sdk.CreateBucketCommand({ Bucket: name })));
    const registry = await startDockerRegistry(join(bench.folder, 'docker-registry-s3'), { s3: access });
    await measure(bench, bucket, bench.keep(registry), {
      ENTREPOT_STORAGE_DRIVER: 's3',
      ENTREPOT_STORAGE_S3_ENDPOINT: swift.endpoint,
      ENTREPOT_STORAGE_S3_BUCKET: name,
      ENTREPOT_STORAGE_S3_FORCE_PATH_STYLE: 'true',
      ENTREPOT_STORAGE_S3_ACCESS_KEY_ID: swift.accessKeyId,
      ENTREPOT_STORAGE_S3_SECRET_ACCESS_KEY: swift.secretAccessKey,
    });
  } finally {
    bucket.close();
    await bench.endPart();
    await swift.stop();
  }
}

async function measure(bench: Bench, bucket: Bucket, registry: Peer, settings: Record<string, string>): Promise<void> {
  const serve = async (title: string, more: Record<string, string>) =>
    bench.serve(await bench.place(`s3-${title.replaceAll(' ', '-')}`), { name: title, settings: more });
  const cached = await serve('local copy', { ...settings, ENTREPOT_STORAGE_S3_PREFIX: 'cached' });
  const uncached = await serve('no copy', {
    ...settings,
    ENTREPOT_STORAGE_S3_PREFIX: 'uncached',
    ENTREPOT_STORAGE_CACHE: '0',
  });
  const redirecting = await serve('redirect', {
    ...settings,
    ENTREPOT_STORAGE_S3_PREFIX: 'redirect',
    ENTREPOT_STORAGE_S3_REDIRECT: 'true',
  });
  const folder = await serve('folder', {});
  const blob = randomBytes(32 * mebibyte);
  const digests = new Map<Peer, string>();
  for (const peer of [cached, uncached, redirecting, folder, registry])
    digests.set(peer, await putBlob(peer, 'team/app', blob));
  const read = (peer: Peer, connections: number, count: number) => async () =>
    (await drain(peer, `/v2/team/app/blobs/${digests.get(peer)!}`, connections, count)) / 1e6;
  for (const [connections, count] of [
    [1, 24],
    [8, 64],
  ] as const) {
    const heading = { title: `blob of 32 MiB, local copy, ${connections} connections`, unit: 'MB/s', bar: '≥ 0.9×' };
    await compare(heading, bench.rounds, {
      'local copy': read(cached, connections, count),
      folder: read(folder, connections, count),
    });
  }
  const hex = hexOf(digests.get(uncached)! as Digest);
  const direct = new URL(await bucket.signedUrl(`uncached/blobs/sha256/${hex.slice(0, 2)}/${hex}`));
  const swift = { name: 'Swift', url: direct.origin, headers: {} } as Peer;
  for (const [connections, count] of [
    [1, 8],
    [4, 16],
  ] as const) {
    const heading = { title: `blob of 32 MiB from S3, ${connections} connections`, unit: 'MB/s', bar: '≥ 0.8×' };
    await compare(heading, bench.rounds, {
      'no copy': read(uncached, connections, count),
      redirect: () => followRedirects(redirecting, digests.get(redirecting)!, connections, count),
      'docker-registry': read(registry, connections, count),
      Swift: async () => (await drain(swift, direct.pathname + direct.search, connections, count)) / 1e6,
    });
  }
  await compare({ title: 'push of 100 MB to S3', unit: 'MB/s', bar: '≥ 0.8×' }, bench.rounds, {
    entrepot: async () => (await push(cached, 'team/app', pushed, 1, 2)) / 1e6,
    'docker-registry': async () => (await push(registry, 'team/app', pushed, 1, 2)) / 1e6,
    'SDK, one PUT': () => sendWith((key, body) => sendWhole(bucket, key, body)),
    'SDK, parts': () => sendWith((key, body) => sendParts(bucket, key, body)),
  });
  note({ title: 'peak memory after these', unit: 'MiB', samples: peaks([cached, uncached, redirecting, folder]) });
}

/** Reads a blob that the server redirects to S3; resolves to MB per second. */
async function followRedirects(peer: Peer, digest: string, connections: number, count: number): Promise<number> {
  const start = performance.now();
  let left = count;
  const readAll = async () => {
    while (left > 0) {
      left -= 1;
      const answer = await fetch(`${peer.url}/v2/team/app/blobs/${digest}`, {
        headers: peer.headers,
        redirect: 'manual',
      });
      await answer.arrayBuffer();
      const location = new URL(answer.headers.get('location')!);
      const s3Server = { name: 'Swift', url: location.origin, headers: {} } as Peer;
      await drain(s3Server, location.pathname + location.search, 1, 1);
    }
  };
  await Promise.all(Array.from({ length: connections }, readAll));
  return (count * 32 * mebibyte) / 1e6 / ((performance.now() - start) / 1000);
}

/** Sends two new bodies one after the other; resolves to MB per second. */
async function sendWith(send: (key: string, body: Buffer) => Promise<unknown>): Promise<number> {
  const bodies = [randomBytes(pushed), randomBytes(pushed)];
  const start = performance.now();
  for (const [index, body] of bodies.entries()) await send(`plain/${process.hrtime.bigint()}-${index}`, body);
  return (2 * pushed) / 1e6 / ((performance.now() - start) / 1000);
}

function sendWhole({ client, sdk }: Bucket, Key: string, Body: Buffer): Promise<unknown> {
  return client.send(new sdk.PutObjectCommand({ Bucket: name, Key, Body }));
}

async function sendParts({ client, sdk }: Bucket, Key: string, body: Buffer): Promise<void> {
  const object = { Bucket: name, Key };
  const { UploadId } = await client.send(new sdk.CreateMultipartUploadCommand(object));
  const Parts: { ETag: string | undefined; PartNumber: number }[] = [];
  let next = 0;
  const work = async () => {
    while (next * part < body.length) {
      const index = next;
      next += 1;
      const Body = body.subarray(index * part, (index + 1) * part);
      const { ETag } = await client.send(
        new sdk.UploadPartCommand({ ...object, UploadId, PartNumber: index + 1, Body }),
      );
      Parts[index] = { ETag, PartNumber: index + 1 };
    }
  };
  await Promise.all(Array.from({ length: partsAtOnce }, work));
  await client.send(new sdk.CompleteMultipartUploadCommand({ ...object, UploadId, MultipartUpload: { Parts } }));
}
