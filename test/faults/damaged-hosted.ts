import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { findCommand } from '../../scripts/packages.ts';
import { containerClient } from '../support/clients/container-clients.ts';
import { damages, filesOf } from '../support/damage.ts';
import { folderUntilEnd, inMemory } from '../support/folder.ts';
import { CommandLine } from '../support/processes/command.ts';
import { digestOf, ociManifest } from '../support/registry.ts';
import type { Fault, FaultOptions, FaultResult } from './fault.ts';
import { authorization, Pushes, settings, token } from './pushes.ts';
import { Teardown } from './teardown.ts';

const repository = 'made/damaged';
/** A small blob is read with its digest each time, a large one with its size. */
const sizes = { small: 1000, large: 600_000 };
const most = 3;

export const fault: Fault = {
  name: 'stored files truncated, extended, removed or flipped: hosted, pushed again, also by skopeo',
  run: damageHosted,
};

interface Blob {
  what: string;
  bytes: Buffer;
  digest: string;
  damage: (path: string) => Promise<void>;
}

/** `lost` is content that a push does not repair, `halfVisible` what is answered as whole with wrong bytes. */
async function damageHosted({ tries: wanted }: FaultOptions): Promise<FaultResult> {
  const tries = Math.min(wanted, most);
  await using t = new Teardown();
  const line = await CommandLine.create(t, settings, inMemory);
  const server = await line.serve();
  const result: FaultResult = { tries, acknowledged: 0, lost: 0, halfVisible: 0, recoveryMs: 0 };
  const pushes = new Pushes();
  for (let each = 0; each < tries; each += 1) {
    const blobs = Object.entries(sizes).flatMap(([size, bytes]) =>
      Object.entries(damages).map(([kind, damage]) => makeBlob(`${size} ${kind}`, randomBytes(bytes), damage)),
    );
    for (const { bytes, digest } of blobs) assert.equal(await push(server.url, digest, bytes), 201);
    for (const { digest, damage } of blobs) await damage(filesOf(line, digest).stored);
    const damagedAt = performance.now();
    // A flipped bit of a large file is found by the scrub, which says so by its exit code.
    for (const blob of blobs) if (blob.what !== 'large flipped') await assertDamaged(server.url, blob, result);
    assert.equal((await line.run('jobs', 'run', 'scrub')).code, 1);
    for (const blob of blobs) await assertDamaged(server.url, blob, result);
    for (const { what, digest, bytes } of blobs) {
      // As docker and podman: a blob that is found is not sent.
      if ((await head(server.url, digest)) !== 404) throw new Error(`${what}: a client would not upload it again`);
      assert.equal(await push(server.url, digest, bytes), 201);
      if (!(await read(server.url, digest))?.equals(bytes)) result.lost += 1;
    }
    result.acknowledged += blobs.length;
    result.recoveryMs = Math.max(result.recoveryMs, performance.now() - damagedAt);
    await pushes.push(server.url, 1);
  }
  const { lost, halfVisible } = await pushes.check(server.url);
  result.acknowledged += pushes.acknowledged;
  result.lost += lost;
  result.halfVisible += halfVisible;
  if (findCommand('skopeo') === undefined) return { ...result, notes: 'skopeo is not installed' };
  const layers = await repairWithSkopeo(t, server.url, line);
  return { ...result, acknowledged: result.acknowledged + layers, notes: `skopeo repaired ${layers} blobs` };
}

async function assertDamaged(url: string, { what, digest }: Blob, result: FaultResult): Promise<void> {
  const response = await fetch(addressOf(url, digest), { headers: { authorization } });
  const bytes = Buffer.from(await response.arrayBuffer());
  if (response.status === 200 && digestOf(bytes) !== digest) result.halfVisible += 1;
  assert.equal(response.status, 500, what);
}

/** Pushes an image with skopeo, damages each of its files, and pushes it again. Resolves to the number of its blobs. */
async function repairWithSkopeo(t: Teardown, url: string, line: CommandLine): Promise<number> {
  const folder = await folderUntilEnd(t, inMemory);
  const { host } = new URL(url);
  const skopeo = await containerClient('skopeo', folder, [host]);
  await skopeo.run('login', '-u', 'api', '-p', token, host);
  const { source, blobs } = await makeImage(folder);
  const copy = () => skopeo.run('copy', '--preserve-digests', `dir:${source}`, `docker://${host}/${repository}:1`);
  await copy();
  for (const damage of [damages.truncated, damages.missing]) {
    for (const digest of blobs) await damage(filesOf(line, digest).stored);
    await copy();
    const back = join(folder, `back-${damage.name}`);
    // `dir:` verifies the digest of every blob.
    await skopeo.run('copy', '--preserve-digests', `docker://${host}/${repository}:1`, `dir:${back}`);
    for (const digest of blobs) assert.equal(digestOf(await readFile(filesOf(line, digest).stored)), digest);
  }
  return blobs.length;
}

/** An image in the form of `dir:`; its manifest is the last one of its blobs. */
async function makeImage(folder: string): Promise<{ source: string; blobs: string[] }> {
  const source = join(folder, 'source');
  await mkdir(source);
  const [small, large] = [randomBytes(sizes.small), randomBytes(sizes.large)];
  const rootfs = { type: 'layers', diff_ids: [digestOf(small), digestOf(large)] };
  const config = Buffer.from(JSON.stringify({ architecture: 'amd64', os: 'linux', config: {}, rootfs }));
  const layers = [gzipSync(small), gzipSync(large)];
  const manifest = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: ociManifest,
      config: descriptor('application/vnd.oci.image.config.v1+json', config),
      layers: layers.map((each) => descriptor('application/vnd.oci.image.layer.v1.tar+gzip', each)),
    }),
  );
  await writeFile(join(source, 'version'), 'Directory Transport Version: 1.1\n');
  await writeFile(join(source, 'manifest.json'), manifest);
  for (const each of [config, ...layers]) await writeFile(join(source, digestOf(each).replace('sha256:', '')), each);
  return { source, blobs: [config, ...layers, manifest].map((each) => digestOf(each)) };
}

function descriptor(mediaType: string, bytes: Buffer): object {
  return { mediaType, digest: digestOf(bytes), size: bytes.length };
}

function makeBlob(what: string, bytes: Buffer, damage: (path: string) => Promise<void>): Blob {
  return { what, bytes, digest: digestOf(bytes), damage };
}

function addressOf(url: string, digest: string): string {
  return `${url}/v2/${repository}/blobs/${digest}`;
}

async function head(url: string, digest: string): Promise<number> {
  return (await fetch(addressOf(url, digest), { method: 'HEAD', headers: { authorization } })).status;
}

async function push(url: string, digest: string, bytes: Buffer): Promise<number> {
  const uploads = `${url}/v2/${repository}/blobs/uploads/?digest=${digest}`;
  const body = new Uint8Array(bytes);
  const response = await fetch(uploads, { method: 'POST', headers: { authorization }, body });
  await response.arrayBuffer();
  return response.status;
}

async function read(url: string, digest: string): Promise<Buffer | undefined> {
  const response = await fetch(addressOf(url, digest), { headers: { authorization } });
  const bytes = Buffer.from(await response.arrayBuffer());
  return response.status === 200 ? bytes : undefined;
}
