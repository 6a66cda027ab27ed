import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtemp, open, readdir, readlink, rm, rmdir, statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { FaultOptions, FaultResult } from './fault.ts';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { packageForm } from '../support/feed.ts';
import { startEntrepot, type Entrepot } from '../support/processes/entrepot.ts';
import { digestOf, ociManifest } from '../support/registry.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

// A server whose data folder is on a small file system of its own (tmpfs: needs root on Linux). It is filled by pushes up
// to the reserve, and by another program to the last byte.

const run = promisify(execFile);
const MiB = 2 ** 20;
const diskSize = 512 * MiB;
const reserve = 16 * MiB;
/** The longest wait for a first accepted push, in milliseconds. */
const recoveryLimit = 30_000;

/** Content that a push was acknowledged for, or was not. */
interface Push {
  /** Where it is read when it is stored. */
  path: string;
  bytes: Buffer;
  status: number;
  isDeleted?: boolean;
}

class Client {
  readonly #server: Entrepot;
  readonly unexpected: string[] = [];
  readonly pushes: Push[] = [];
  #count = 0;

  constructor(server: Entrepot) {
    this.#server = server;
  }

  fetch(path: string, init: RequestInit & { type?: string } = {}): Promise<Response> {
    const headers = { authorization: `Bearer ${this.#server.token}`, ...(init.type && { 'content-type': init.type }) };
    return fetch(this.#server.url + path, { ...init, headers, signal: AbortSignal.timeout(30_000) });
  }

  /** Pushes a package or an image of `size` bytes, in turn; resolves to the status of the refused request, or 201. */
  async push(size: number): Promise<number> {
    this.#count += 1;
    const push = this.#count % 2 === 0 ? await this.#package(size) : await this.#image(size);
    if (push.status !== 201 && push.status !== 507) this.unexpected.push(`a push answered ${push.status}`);
    this.pushes.push(push);
    return push.status;
  }

  async #package(size: number): Promise<Push> {
    const id = `package${this.#count}`;
    const bytes = await makeNupkg({ id, version: '1.0.0', payloadBytes: size });
    const { body, type } = packageForm(bytes);
    const response = await this.fetch('/v3/push', { method: 'PUT', body: new Uint8Array(body), type });
    await response.text();
    return { path: `/v3/package/${id}/1.0.0/${id}.1.0.0.nupkg`, bytes, status: response.status };
  }

  /** Sends the layer in two chunks. Resolves to the first refusal. */
  async #image(size: number): Promise<Push> {
    const layer = randomBytes(size);
    const digest = digestOf(layer);
    const config = { mediaType: 'application/vnd.oci.empty.v1+json', digest: digestOf('{}'), size: 2 };
    const layers = [{ mediaType: 'application/vnd.oci.image.layer.v1.tar', digest, size }];
    const bytes = Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType: ociManifest, config, layers }));
    const name = `team/image${this.#count}`;
    const path = `/v2/${name}/manifests/v1`;
    const uploads = `/v2/${name}/blobs/uploads/`;
    const send = async (method: string, to: string, body?: Buffer, type?: string) => {
      const response = await this.fetch(to, {
        method,
        ...(body && { body: new Uint8Array(body) }),
        ...(type !== undefined && { type }),
      });
      await response.text();
      return response;
    };
    const started = await send('POST', uploads);
    if (started.status !== 202) return { path, bytes, status: started.status };
    const session = started.headers.get('location')!;
    for (const chunk of [layer.subarray(0, size / 2), layer.subarray(size / 2)]) {
      const { status } = await send('PATCH', session, chunk);
      if (status === 202) continue;
      await send('DELETE', session);
      return { path, bytes, status };
    }
    for (const [method, to, body, type] of [
      ['PUT', `${session}?digest=${digest}`, undefined, undefined],
      ['POST', `${uploads}?digest=${config.digest}`, Buffer.from('{}'), undefined],
      ['PUT', path, bytes, ociManifest],
    ] as const) {
      const { status } = await send(method, to, body, type);
      if (status !== 201) return { path, bytes, status };
    }
    return { path, bytes, status: 201 };
  }

  /** How many acknowledged pushes are lost, and how many refused ones can be seen. */
  async check(): Promise<Pick<FaultResult, 'lost' | 'halfVisible'>> {
    const found = { lost: 0, halfVisible: 0 };
    for (const { path, bytes, status, isDeleted } of this.pushes) {
      const response = await this.fetch(path);
      const body = Buffer.from(await response.arrayBuffer());
      const isStored = status === 201 && !isDeleted;
      if (isStored && !body.equals(bytes)) found.lost += 1;
      if (!isStored && response.status !== 404) found.halfVisible += 1;
    }
    return found;
  }

  /** Deletes an acknowledged package, which must then be gone. */
  async delete(push: Push): Promise<void> {
    const [, , , id, version] = push.path.split('/');
    const { status } = await this.fetch(`/v1/packages/${id}/${version}`, { method: 'DELETE' });
    if (status !== 204) this.unexpected.push(`a deletion answered ${status}`);
    push.isDeleted = true;
  }

  /** Milliseconds until a push is accepted. */
  async recover(): Promise<number> {
    const startedAt = performance.now();
    while ((await this.push(MiB)) !== 201) {
      if (performance.now() - startedAt > recoveryLimit)
        throw new Error('no push was accepted after the disk had space');
    }
    return Math.round(performance.now() - startedAt);
  }
}

/** Writes a file until the file system takes no more. */
async function fill(path: string): Promise<void> {
  const file = await open(path, 'a');
  try {
    for (const piece of [Buffer.alloc(MiB), Buffer.alloc(4096)]) {
      for (;;) if ((await file.write(piece)).bytesWritten < piece.length) break;
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
  } finally {
    await file.close();
  }
}

/** Creates a file that leaves `rest` bytes of the file system that holds `folder`. */
async function allocate(path: string, folder: string, rest: number): Promise<void> {
  const { bavail, bsize } = await statfs(folder);
  await run('fallocate', ['-l', `${bavail * bsize - rest}`, path]);
}

/** How many files of staged or stored content the server has open. */
async function openContent({ pid }: Entrepot): Promise<number> {
  const descriptors = await readdir(`/proc/${pid}/fd`);
  const targets = await Promise.all(descriptors.map((each) => readlink(`/proc/${pid}/fd/${each}`).catch(() => '')));
  return targets.filter((target) => /\/data\/(?:staging|blobs)\//.test(target)).length;
}

/** A cold pull of `path`: whether the client gets all of `bytes`. */
async function pulls(client: Client, path: string, bytes: Buffer): Promise<boolean> {
  const response = await client.fetch(path);
  return response.status === 200 && Buffer.from(await response.arrayBuffer()).equals(bytes);
}

async function faultRun({ tries }: Pick<FaultOptions, 'tries'>): Promise<FaultResult> {
  await using stack = new AsyncDisposableStack();
  const folder = await mkdtemp(join(tmpdir(), 'entrepot-full-'));
  stack.defer(() => rmdir(folder));
  await run('mount', ['-t', 'tmpfs', '-o', `size=${diskSize}`, 'tmpfs', folder]);
  stack.defer(async () => void (await run('umount', [folder])));
  const upstream = await startUpstreamRegistry({ teardown: (close) => stack.defer(() => close()) });
  const server = await startEntrepot(folder, {
    ENTREPOT_STORAGE_RESERVE: '16MiB',
    ENTREPOT_GC_GRACE: '0s',
    ENTREPOT_UPSTREAMS: JSON.stringify([upstream.settings('up.test')]),
  });
  stack.defer(() => server.stop());
  const client = new Client(server);
  const cold = async (round: string) => {
    const bytes = randomBytes(20 * MiB);
    const { digest } = upstream.blob(`team/${round}`, bytes);
    const { manifest } = upstream.image(`team/${round}`, 'v1');
    const isWhole = await pulls(client, `/v2/up.test/team/${round}/manifests/v1`, Buffer.from(manifest.bytes));
    return isWhole && (await pulls(client, `/v2/up.test/team/${round}/blobs/${digest}`, bytes));
  };
  const filler = join(folder, 'filler');
  let coldPulls = 0;
  let recoveryMs = 0;
  let rounds = 0;
  while (client.pushes.length < tries) {
    rounds += 1;
    // Another program leaves a few mebibytes above the reserve, and the pushes take these.
    await allocate(filler, folder, reserve + 10 * MiB);
    for (let turn = 0; turn < 6 && (await client.push(3 * MiB)) === 201;) turn += 1;
    if (await cold(`reserve${rounds}`)) coldPulls += 1;
    const kept = client.pushes.find(
      ({ status, path, isDeleted }) => status === 201 && path.startsWith('/v3') && !isDeleted,
    );
    if (kept) await client.delete(kept);
    // To the last byte, in the middle of a push.
    const pushing = client.push(6 * MiB);
    await fill(filler);
    await pushing;
    for (let turn = 0; turn < 4; turn += 1) await client.push(2 * MiB);
    if (await cold(`full${rounds}`)) coldPulls += 1;
    const checked = await client.check();
    if (checked.lost > 0) client.unexpected.push(`${checked.lost} lost while the disk was full`);
    await rm(filler);
    recoveryMs = Math.max(recoveryMs, await client.recover());
  }
  const checked = await client.check();
  const staged = (await readdir(join(folder, 'data', 'staging'))).length;
  const leaked = await openContent(server);
  const refused = client.pushes.filter(({ status }) => status === 507).length;
  const notes = [
    `${refused} refused with 507`,
    `${coldPulls} of ${2 * rounds} cold pulls complete`,
    `${staged} files staged`,
    `${leaked} content files open`,
    ...new Set(client.unexpected),
  ];
  return {
    tries: client.pushes.length,
    acknowledged: client.pushes.length - refused,
    ...checked,
    recoveryMs,
    notes: notes.join('; '),
  };
}

/** A full disk: reserve reached, and the last byte taken. */
export const fault = { name: 'full disk (tmpfs)', run: faultRun };

if (import.meta.main) console.log(await fault.run({ tries: Number(process.argv[2] ?? 100) }));
