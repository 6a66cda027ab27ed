import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { testRegistry } from './registry-suite.ts';

// In a process of its own: a helper declares tests of it.

// The same suite as that of Debian's registry in `test/clients/upstream-registry.test.ts`.

testRegistry('fake registry', async (t) => {
  const registry = await startUpstreamRegistry(t);
  return {
    url: registry.url.href.slice(0, -1),
    headers: {},
    blob: (bytes) => registry.blob('app', bytes),
    manifest: async (text, tag) => registry.manifest('app', text, tag),
  };
});
