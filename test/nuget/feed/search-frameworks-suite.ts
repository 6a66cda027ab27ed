import test, { type ExecutionContext } from 'ava';
import type { Dialect } from '../../../src/database/database.ts';
import { temporaryDatabase } from '../../support/databases.ts';
import { TestFeed } from '../../support/feed.ts';
import { startTestServer } from '../../support/server.ts';

// A search may name target frameworks: then it finds packages that projects with one of them can use.

const groups: Record<string, (string | undefined)[]> = {
  'Fw.Any': [undefined],
  'Fw.AnyOr': [undefined, 'net9.0'],
  'Fw.Core8': ['net8.0'],
  'Fw.Core8Standard2': ['net8.0', 'netstandard2.0'],
  'Fw.Desktop': ['.NETFramework4.6.1', '.NETFramework4.8'],
  'Fw.NoGroups': [],
  'Fw.Old': ['.NETStandard1.3'],
  'Fw.Phone': ['uap10.0'],
  'Fw.Windows8': ['net8.0-windows7.0'],
};
const always = ['Fw.Any', 'Fw.AnyOr', 'Fw.NoGroups'];

async function startFeed(t: ExecutionContext, dialect: Dialect): Promise<TestFeed> {
  const feed = new TestFeed(await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } }));
  for (const [id, frameworks] of Object.entries(groups)) {
    const dependencyGroups = frameworks.map((targetFramework) => ({
      ...(targetFramework !== undefined && { targetFramework }),
      dependencies: [{ id: 'Contoso.Core', version: '1.0.0' }],
    }));
    await feed.publish({ id, tags: 'shared', description: 'Nothing.', payloadBytes: 0, dependencyGroups });
  }
  return feed;
}

const versionFor = (version: string, targetFramework: string) => ({
  id: 'Moved',
  version,
  dependencyGroups: [{ targetFramework, dependencies: [] }],
});

/** Which packages a search with frameworks finds, on one database. */
export function frameworksOn(dialect: Dialect): void {
  test(`a search with frameworks finds packages that one of them can use (${dialect})`, async (t) => {
    const feed = await startFeed(t, dialect);
    const everything = Object.keys(groups).toSorted();
    const cases: [parameters: string, more: string[] | undefined][] = [
      ['supportedFramework=net8.0', ['Fw.Core8', 'Fw.Core8Standard2', 'Fw.Old']],
      ['supportedFramework=net10.0', ['Fw.Core8', 'Fw.Core8Standard2', 'Fw.Old']],
      ['supportedFramework=.NETCoreApp,Version=v8.0', ['Fw.Core8', 'Fw.Core8Standard2', 'Fw.Old']],
      ['supportedFramework=net8.0-windows10.0.19041', ['Fw.Core8', 'Fw.Core8Standard2', 'Fw.Old', 'Fw.Windows8']],
      ['supportedFramework=net7.0-windows', ['Fw.Core8Standard2', 'Fw.Old']],
      ['supportedFramework=net6.0', ['Fw.Core8Standard2', 'Fw.Old']],
      ['supportedFramework=net472', ['Fw.Core8Standard2', 'Fw.Desktop', 'Fw.Old']],
      ['supportedFramework=.NETFramework,Version=v4.6', ['Fw.Old']],
      ['supportedFramework=net20', []],
      ['supportedFramework=netstandard2.0', ['Fw.Core8Standard2', 'Fw.Old']],
      ['supportedFramework=netstandard1.0', []],
      ['SUPPORTEDFRAMEWORK=net45&supportedFramework=net8.0', ['Fw.Core8', 'Fw.Core8Standard2', 'Fw.Old']],
      ['supportedFramework=net46,net8.0', ['Fw.Core8', 'Fw.Core8Standard2', 'Fw.Old']],
      [
        'supportedFramework=.NETFramework,Version=v4.8,.NETCoreApp,Version=v8.0',
        ['Fw.Core8', 'Fw.Core8Standard2', 'Fw.Desktop', 'Fw.Old'],
      ],
      ['tfms=net46,netstandard2.0', ['Fw.Core8Standard2', 'Fw.Old']],
      ['frameworks=net', ['Fw.Core8', 'Fw.Core8Standard2', 'Fw.Old']],
      ['frameworks=netcoreapp', ['Fw.Core8Standard2', 'Fw.Old']],
      ['frameworks=netframework,netstandard', ['Fw.Core8Standard2', 'Fw.Desktop', 'Fw.Old']],
      ['frameworks=netcoreapp&tfms=net8.0', ['Fw.Core8', 'Fw.Core8Standard2', 'Fw.Old']],
      // An unknown target says nothing about which packages it can use.
      ['supportedFramework=unheard', undefined],
      ['supportedFramework=', undefined],
      ['supportedFramework=net8.0&supportedFramework=uap10.0', undefined],
      ['supportedFramework=net8.0-toaster', undefined],
      ['frameworks=everything', undefined],
      [`supportedFramework=${'net20,'.repeat(40)}`, undefined],
      [`supportedFramework=net${'9'.repeat(400)}.0`, undefined],
    ];
    for (const [parameters, more] of cases) {
      const wanted = more ? [...always, ...more].toSorted() : everything;
      for (const q of ['', 'fw', 'shared', 'fw shared', 'nothing']) {
        const { data, totalHits } = await feed.json(`/search?q=${q}&${parameters}`);
        t.deepEqual(data.map((hit: any) => hit.id).toSorted(), wanted, `${q} ${parameters}`);
        t.is(totalHits, wanted.length, `${q} ${parameters}`);
      }
      t.deepEqual((await feed.json(`/autocomplete?q=fw&${parameters}`)).data.toSorted(), wanted, parameters);
    }
    for (const q of ['', 'shared', 'fw']) {
      const paged: string[] = [];
      for (let skip = 0; skip < 8; skip += 2) {
        const page = await feed.json(`/search?q=${q}&supportedFramework=net8.0&skip=${skip}&take=2`);
        t.is(page.totalHits, 6);
        paged.push(...page.data.map((hit: any) => hit.id));
      }
      t.deepEqual(paged.toSorted(), [...always, 'Fw.Core8', 'Fw.Core8Standard2', 'Fw.Old'].toSorted(), q);
    }
  });

  test(`the newest listed version decides which frameworks can use a package (${dialect})`, async (t) => {
    const feed = await startFeed(t, dialect);
    const found = async () => (await feed.json('/search?q=packageid:moved&supportedFramework=net8.0')).totalHits;
    await feed.publish(versionFor('1.0.0', 'net8.0'));
    t.is(await found(), 1);
    await feed.publish(versionFor('2.0.0', 'net10.0'));
    t.is(await found(), 0);
    await feed.fetch('/push/moved/2.0.0', { method: 'DELETE' });
    t.is(await found(), 1);
    await feed.publish(versionFor('3.0.0', `net${'9'.repeat(200)}.0`));
    t.is(await found(), 0, 'any number is a version');
  });
}
