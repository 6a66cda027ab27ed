import test from 'ava';
import { errorOf, TestRepository } from '../../support/registry.ts';
import { startTestServer } from '../../support/server.ts';
import { answer } from '../../support/upstreams/faulty-upstream.ts';
import { startUpstreamRegistry } from '../../support/upstreams/upstream-registry.ts';

// In a process of its own: its clock is moved.

test('a list of many pages may take longer than one of few, but not any time', async (t) => {
  const now = performance.now.bind(performance);
  let passed = 0;
  performance.now = () => now() + passed;
  t.teardown(() => (performance.now = now));
  const upstream = await startUpstreamRegistry(t);
  /** Each page takes `time` milliseconds. */
  const pages = (name: string, count: number, time: number) => {
    const list = `/v2/team/${name}/tags/list`;
    for (let page = 0; page < count; page += 1) {
      const headers = page + 1 < count ? { link: `<${list}?page=${page + 1}>; rel="next"` } : {};
      const send = answer(200, headers, `{"tags":["v${page}"]}`);
      upstream.on(page === 0 ? list : `${list}?page=${page}`, (request, response) => {
        passed += time;
        return send(request, response);
      });
    }
  };
  pages('many', 160, 400);
  pages('slow', 160, 2500);
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test', { timeout: '10s' })] });
  const many = await new TestRepository(server, 'up.test/team/many').fetch('tags/list');
  t.is(many.status, 200);
  t.is(((await many.json()) as { tags: string[] }).tags.length, 160);
  const before = upstream.requests().length;
  const slow = await new TestRepository(server, 'up.test/team/slow').fetch('tags/list');
  t.deepEqual(await errorOf(slow), [502, 'UNAVAILABLE']);
  t.true(upstream.requests().length - before < 30, 'it stops when the time is over');
});
