import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';

// A new route that reads mirrored content: request it in `admission.test.ts`, then add it here. Operations of `/v1` are
// requested there as the OpenAPI document names them.

const src = join(import.meta.dirname, '../../src');

test('the routes of the feed that reveal versions are requested by the test of the admission', async (t) => {
  const folder = join(src, 'nuget/feed');
  const texts = await Promise.all((await readdir(folder)).map((name) => readFile(join(folder, name), 'utf8')));
  const found = texts.flatMap((text) =>
    [...text.matchAll(/router\.get\(\s*['`]([^'`]+)['`]/g)].map(([, path]) => path!),
  );
  const revealing = [
    '/package/:id/index.json',
    '/package/:id/:version/:file',
    '/${hive}/:id/index.json',
    '/${hive}/:id/page/:lower/:upper.json',
    '/${hive}/:id/:version.json',
    '/search',
    '/autocomplete',
    '/symbols/:file/:key/:again',
  ];
  const others = [
    '/index.json',
    '/vulnerabilities/index.json',
    '/vulnerabilities/base.json',
    '/vulnerabilities/:upstream/:name.json',
  ];
  t.deepEqual(found.toSorted(), [...revealing, ...others].toSorted());
});

test('the kinds of addresses of the registry are those that the test of the admission requests', async (t) => {
  const text = await readFile(join(src, 'oci/format/reference.ts'), 'utf8');
  const [, kinds = ''] = /^ {2}kind:\s+([^;]+);$/m.exec(text) ?? [];
  const revealing = ['manifest', 'blob', 'tags', 'referrers', 'tag-history'];
  const others = ['base', 'catalog', 'uploads', 'upload', 'discover', 'unknown'];
  t.deepEqual(
    [...kinds.matchAll(/'([\w-]+)'/g)].map(([, kind]) => kind!).toSorted(),
    [...revealing, ...others].toSorted(),
  );
});
