import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import test, { type ExecutionContext } from 'ava';
import { Partials } from '../../src/mirror/fetch/partials.ts';
import { Paths } from '../../src/storage/files/paths.ts';
import { StagedFile } from '../../src/storage/files/staged-file.ts';
import { until } from '../support/upstreams/faulty-upstream.ts';

async function setUp(t: ExecutionContext, keptFor: number) {
  const data = await mkdtemp(join(tmpdir(), 'entrepot-test-'));
  t.teardown(() => rm(data, { recursive: true, force: true }));
  const paths = new Paths(data);
  await mkdir(paths.staging);
  const partials = new Partials(keptFor);
  t.teardown(() => partials.close());
  const partial = async () => ({
    head: {
      kind: 'fetched' as const,
      body: Readable.from([]),
      size: 10,
      type: 'x/y',
      etag: null,
      lastModified: null,
    },
    staged: await StagedFile.create(paths),
    received: { bytes: 0, digest: undefined },
    expected: undefined,
  });
  return { partials, partial, files: () => readdir(paths.staging) };
}

test('the last 64 beginnings of bodies without readers are kept', async (t) => {
  const { partials, partial, files } = await setUp(t, 600_000);
  for (let index = 0; index < 70; index += 1) await partials.keep(`${index}`, await partial());
  t.is((await files()).length, 64);
  t.is(partials.take('5'), undefined);
  const kept = partials.take('6')!;
  t.truthy(kept);
  t.is(partials.take('6'), undefined, 'a file can be taken once');
  await kept.staged.discard();
  await partials.keep('69', await partial());
  t.is((await files()).length, 63, 'one in place of the other');
  await partials.close();
  t.deepEqual(await files(), []);
});

test('a kept beginning is removed after its time', async (t) => {
  const { partials, partial, files } = await setUp(t, 20);
  await partials.keep('a', await partial());
  t.is((await files()).length, 1);
  await until(async () => (await files()).length === 0);
  t.is(partials.take('a'), undefined);
});
