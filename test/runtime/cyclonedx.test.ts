import test from 'ava';
import { imageComponent, packageComponent, toolOf } from '../../src/runtime/cyclonedx.ts';
import type { Digest } from '../../src/runtime/digest.ts';

const sha256 = `sha256:${'a'.repeat(64)}` as Digest;
const sha512 = `sha512:${'b'.repeat(128)}` as Digest;

test('a component has a package URL with escapes, and the hash of its content', (t) => {
  t.deepEqual(toolOf('1.2.3'), { components: [{ type: 'application', name: 'entrepot', version: '1.2.3' }] });
  t.deepEqual(packageComponent('My Lib', '1.0.0+b'), {
    'bom-ref': 'pkg:nuget/My%20Lib@1.0.0%2Bb',
    type: 'library',
    name: 'My Lib',
    version: '1.0.0+b',
    purl: 'pkg:nuget/My%20Lib@1.0.0%2Bb',
  });
  t.deepEqual(packageComponent('Lib', '1.0.0', { digest: sha512, upstream: 'a&b' }), {
    'bom-ref': 'pkg:nuget/Lib@1.0.0?upstream=a%26b',
    type: 'library',
    name: 'Lib',
    version: '1.0.0',
    purl: 'pkg:nuget/Lib@1.0.0',
    hashes: [{ alg: 'SHA-512', content: 'b'.repeat(128) }],
  });
  const untagged = `pkg:oci/app@sha256%3A${'a'.repeat(64)}?repository_url=hub.test%2Fteam%2Fapp`;
  const image = { type: 'container', name: 'hub.test/team/app', hashes: [{ alg: 'SHA-256', content: 'a'.repeat(64) }] };
  t.deepEqual(imageComponent('hub.test/team/app', sha256), {
    ...image,
    'bom-ref': untagged,
    version: sha256,
    purl: untagged,
  });
  t.deepEqual(imageComponent('hub.test/team/app', sha256, 'v1'), {
    ...image,
    'bom-ref': `${untagged}&tag=v1`,
    version: 'v1',
    purl: `${untagged}&tag=v1`,
  });
  t.is(imageComponent('app', sha256).purl, `pkg:oci/app@sha256%3A${'a'.repeat(64)}?repository_url=app`);
});
