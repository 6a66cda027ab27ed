import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { makeNupkg } from './builders/nupkg.ts';
import type { AirGap } from './bundles.ts';
import type { TestServer } from './server.ts';
import { until } from './until.ts';

type Json = Record<string, any>;

/** A form of `/v1/bundles`. `against` is a receipt. */
export function bundleForm(
  lists: Record<string, string>,
  fields: Record<string, string> = {},
  against?: Buffer,
): FormData {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.set(name, value);
  for (const [name, text] of Object.entries(lists)) form.append('file', new Blob([text]), name);
  if (against) form.append('against', new Blob([new Uint8Array(against)]), 'receipt');
  return form;
}

/** The answer of an operation, which must succeed. */
export async function called(server: TestServer, method: string, path: string, body?: unknown): Promise<Json> {
  const isJson = body !== undefined && !(body instanceof FormData) && !(body instanceof Uint8Array);
  const response = await server.fetch(`/v1/bundles${path}`, {
    method,
    ...(body !== undefined && { body: isJson ? JSON.stringify(body) : (body as FormData) }),
    ...(isJson && { headers: { 'content-type': 'application/json' } }),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return text === '' ? {} : (JSON.parse(text) as Json);
}

/** As `called`, for an operation that is refused; resolves to its status and what it says. */
export async function refusal(
  server: TestServer,
  method: string,
  path: string,
  init: Parameters<TestServer['fetch']>[1] = {},
): Promise<{ status: number; detail: string }> {
  const response = await server.fetch(`/v1/bundles${path}`, { method, ...init });
  const { detail } = (await response.json()) as { detail: string };
  return { status: response.status, detail };
}

/** Waits until a making or an import does not run; resolves to it. */
export async function ended(server: TestServer, path: string): Promise<Json> {
  let run: Json = {};
  await until(async () => {
    run = await called(server, 'GET', path);
    return run['state'] !== 'running';
  });
  return run;
}

/** Sends segments to a new import; resolves to its path. */
export async function sentImport(server: TestServer, segments: Readonly<Record<number, Buffer>>): Promise<string> {
  const { id } = await called(server, 'POST', '/imports');
  for (const [number, bytes] of Object.entries(segments))
    await called(server, 'PUT', `/imports/${id}/segments/${number}`, new Uint8Array(bytes));
  return `/imports/${id}`;
}

/** Runs an import; resolves to its result. */
export async function ranImport(server: TestServer, path: string, options: object = {}): Promise<Json> {
  await called(server, 'POST', `${path}/run`, options);
  return ended(server, path);
}

/** A bundle with a package and an image, made by the command; resolves to its segments. */
export async function madeBundle(
  { near, feed, registry, file, path }: AirGap,
  name: string,
  ...flags: string[]
): Promise<Record<number, Buffer>> {
  await feed.offer({
    id: 'Lib.One',
    versions: [{ version: '1.0.0', nupkg: await makeNupkg({ id: 'Lib.One', version: '1.0.0' }) }],
  });
  registry.image('library/redis', '7');
  const lists = [await file('packages.txt', 'Lib.One@1.0.0\n'), await file('images.txt', 'redis:7\n')];
  await near.ok('bundle', 'create', ...lists, '--to', path(name), ...flags);
  const segments: Record<number, Buffer> = {};
  for (const each of await readdir(path(name)))
    segments[Number(each.slice(0, 4))] = await readFile(join(path(name), each));
  return segments;
}
