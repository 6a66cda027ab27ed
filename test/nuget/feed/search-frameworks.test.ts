import test from 'ava';
import { TestFeed } from '../../support/feed.ts';
import { startMirrorOf, UpstreamFeed } from '../../support/upstreams/upstream-feed.ts';
import { frameworksOn } from './search-frameworks-suite.ts';

frameworksOn('sqlite');

test('an upstream gets the frameworks of a search, in one spelling and without anything else', async (t) => {
  const up = await UpstreamFeed.start(t);
  const feed = new TestFeed(await startMirrorOf(t, [up.as('up.test')], {}));
  const asked: string[] = [];
  const search = up.search();
  up.upstream.on('/query', (request, response) => {
    asked.push(new URL(request.url!, up.url).search);
    return search(request, response);
  });
  const ask = async (parameters: string) => {
    await feed.json(`/search?q=seam&${parameters}`);
    return asked.splice(0).map((each) => each.split('semVerLevel=1.0.0')[1]);
  };
  t.deepEqual(await ask('take=3'), ['']);
  t.deepEqual(await ask('supportedFramework=.NETCoreApp,Version=v8.0&tfms=.NETFramework4.7.2,NET8.0-Windows10.0.1'), [
    '&supportedFramework=net8.0&supportedFramework=net472&supportedFramework=net8.0-windows',
  ]);
  t.deepEqual(await ask('frameworks=NET,netstandard&supportedFramework=netcoreapp3.1'), [
    '&supportedFramework=netcoreapp3.1&frameworks=net&frameworks=netstandard',
  ]);
  t.deepEqual(await ask('take=4&supportedFramework=net8.0-contoso.secret'), ['']);
  t.deepEqual(await ask('take=5&frameworks=contoso.secret'), ['']);
});
