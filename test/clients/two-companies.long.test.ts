import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import type { Page } from 'playwright-core';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { browserCommand, browserIn, sharedIn, visit } from '../support/browser.ts';
import { temporaryFolder } from '../support/clients/clients.ts';
import { startDockerEngine } from '../support/clients/docker-engine.ts';
import { dotnet, sourceName } from '../support/clients/dotnet.ts';
import { testWith } from '../support/clients/test-with.ts';
import { tokenOf } from '../support/inside.ts';
import { personalToken, signedIn, startProvider } from '../support/provider.ts';
import { sendJson, type Json } from '../identity/support.ts';

// Two companies on one server: contoso, whose teams publish, and fabrikam, which uses some of it. Each is an account. Their
// people sign in with one provider, which knows the teams as groups, and use clients with personal tokens (docs/people.md).

const people: Record<string, { name: string; groups?: string[] }> = {
  ada: { name: 'Ada', groups: ['contoso-admins'] },
  ann: { name: 'Ann', groups: ['contoso-platform'] },
  cal: { name: 'Cal' },
  dan: { name: 'Dan', groups: ['contoso-platform'] },
  eve: { name: 'Eve', groups: ['contoso-platform'] },
  fay: { name: 'Fay', groups: ['fabrikam-admins'] },
  fin: { name: 'Fin', groups: ['fabrikam-shop'] },
};
const companies = ['contoso', 'fabrikam'];
const rules = companies.map((account) => ({
  claim: 'groups',
  value: `${account}-admins`,
  account,
  scopes: ['read', 'delete', 'promote', 'admin'],
}));
const shop = { kind: 'group', id: 'fabrikam-shop' };
const platform = { kind: 'group', id: 'contoso-platform' };
const contractor = { kind: 'person', id: 'cal' };

const folder = await temporaryFolder();
const browser = browserIn(test);
const engine = sharedIn(test, async (t) => {
  const started = await startDockerEngine(join(folder.path, 'engine'));
  t.teardown(() => started.stop());
  return started;
});
test.after.always(() => folder.remove());

const story = sharedIn(test, async (t) => {
  const { server, issuer, who } = await startProvider(t, people, rules, { deletedFor: '7d' });
  for (const account of companies) await tokenOf(server, ['read'], account);
  const signIn = (id: string) => {
    who.id = id;
    return signedIn(server);
  };
  const token = async (id: string, ...scopes: string[]) => personalToken(await signIn(id), server, scopes);
  const administrators = {
    contoso: await token('ada', 'read', 'delete', 'admin'),
    fabrikam: await token('fay', 'read', 'admin'),
  };
  const call = async (by: keyof typeof administrators, method: string, path: string, body?: Json) => {
    const answer = await sendJson(server, method, `/v1${path}`, body, administrators[by]);
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
    return answer.status === 204 ? {} : ((await answer.json()) as Json);
  };
  await call('contoso', 'POST', '/grants', { subject: platform, verbs: ['read', 'write', 'promote'] });
  const pay = { packages: ['Contoso.Pay.*'], images: ['pay/*'] };
  await call('contoso', 'POST', '/grants', { subject: contractor, verbs: ['read', 'write'], ...pay });
  await call('fabrikam', 'POST', '/grants', { subject: shop, verbs: ['read'] });
  const { host } = new URL(server.url);
  return { server, issuer, who, signIn, token, call, host };
});

/** The machine of somebody who uses dotnet. Each restore begins without packages. */
async function machine(value: string) {
  const { server } = await story();
  const place = join(folder.path, value.slice(-8));
  const client = await dotnet(place, { url: `${server.url}/v3/index.json`, username: 'api', password: value });
  let count = 0;
  const restoring = async (id: string) => {
    count += 1;
    const project = await client.project(`Program${count}`, { [id]: '1.0.0' });
    return ['restore', project, '--packages', join(place, `packages${count}`), '--no-http-cache'];
  };
  const pushing = async (id: string) => {
    const file = join(place, `${id}.nupkg`);
    await writeFile(file, await makeNupkg({ id, version: '1.0.0' }));
    return ['nuget', 'push', file, '--source', sourceName, '--api-key', value];
  };
  return {
    push: async (id: string) => client.run(...(await pushing(id))),
    failsToPush: async (id: string) => client.fails(...(await pushing(id))),
    restore: async (id: string) => client.run(...(await restoring(id))),
    failsToRestore: async (id: string) => client.fails(...(await restoring(id))),
  };
}

/** The docker client of one person, signed in with a personal token. */
async function dockerAs(value: string) {
  const { host } = await story();
  const { docker, build } = await engine();
  const own = ['--config', join(folder.path, `docker-${value.slice(-8)}`)];
  await docker.run(...own, 'login', '-u', 'api', '-p', value, host);
  return {
    build,
    run: (...args: string[]) => docker.run(...own, ...args),
    fails: (...args: string[]) => docker.fails(...own, ...args),
  };
}

/** A window in which this person signs in with the provider, on the way to `path`. */
async function inBrowser(t: ExecutionContext, id: string, path: string, work: (page: Page) => Promise<void>) {
  const { server, issuer, who } = await story();
  who.id = id;
  await visit(t, await browser(), server, { token: null, origins: [issuer] }, async ({ page }) => {
    await page.goto(path);
    await page.getByRole('link', { name: 'Sign in with' }).click();
    await page.waitForURL(server.url + path);
    await work(page);
  });
}

const sees = (page: Page, text: string | RegExp) => page.getByText(text).first().waitFor();
const press = (page: Page, name: string | RegExp) => page.getByRole('button', { name }).first().click();

testWith('dotnet')(
  'a library of one team is restored by the other company, from the address that it has',
  async (t) => {
    const { token, call } = await story();
    const publisher = await machine(await token('ann', 'read', 'write'));
    await publisher.push('Contoso.Library');
    await publisher.push('Contoso.Secret');
    const consumer = await machine(await token('fin', 'read'));
    t.regex(await consumer.failsToRestore('Contoso.Library'), /NU1101: Unable to find package Contoso\.Library/);
    const subject = { kind: 'account', id: 'fabrikam' };
    const { id } = await call('contoso', 'POST', '/grants', {
      subject,
      verbs: ['read'],
      packages: ['Contoso.Library'],
    });
    t.like(await call('fabrikam', 'POST', `/grants/${String(id)}/accept`), { state: 'active' });
    await consumer.restore('Contoso.Library');
    t.regex(await consumer.failsToRestore('Contoso.Secret'), /NU1101: Unable to find package Contoso\.Secret/);
  },
);

const limited = (verb: string, what: string, before = '') =>
  new RegExp(`${before}The right "${verb}" in the account contoso is limited to names that do not match the ${what}`);

testWith('dotnet')('dotnet pushes only what a contractor may push, and prints why', async (t) => {
  const { token } = await story();
  const contractors = await machine(await token('cal', 'read', 'write'));
  await contractors.push('Contoso.Pay.Core');
  await contractors.restore('Contoso.Pay.Core');
  t.regex(await contractors.failsToPush('Contoso.Orders'), limited('write', 'package "contoso\\.orders"'));
  await (await machine(await token('ann', 'read', 'write'))).push('Contoso.Orders');
  t.regex(await contractors.failsToRestore('Contoso.Orders'), limited('read', 'package "contoso\\.orders"'));
});

testWith('dockerd')('docker pushes and pulls only the images of a contractor, and prints why', async (t) => {
  const { token, host } = await story();
  const own = `${host}/pay/web:v1`;
  const other = `${host}/team/orders:v1`;
  const owner = await dockerAs(await token('ann', 'read', 'write'));
  await owner.build(other, 'orders');
  await owner.run('push', other);
  const docker = await dockerAs(await token('cal', 'read', 'write'));
  await docker.build(own, 'pay');
  await docker.run('push', own);
  await docker.run('pull', own);
  t.regex(await docker.fails('push', other), limited('write', 'container "team/orders"', 'denied: '));
  t.regex(await docker.fails('pull', other), limited('read', 'container "team/orders"', 'denied: '));
});

testWith('dockerd')('docker prints why a frozen tag does not move', async (t) => {
  const { token, call, host } = await story();
  await call('contoso', 'PUT', '/account/permanence', { freeze: { images: ['team/frozen:v*'] } });
  const docker = await dockerAs(await token('ann', 'read', 'write'));
  const name = `${host}/team/frozen:v1`;
  await docker.build(name, 'first');
  await docker.run('push', name);
  await docker.run('push', name);
  await docker.build(name, 'second');
  t.regex(
    await docker.fails('push', name),
    /The image tag 'v1' already exists in the 'team\/frozen' repository and cannot be overwritten because it is frozen/,
  );
});

testWith('dotnet', browserCommand)(
  'dotnet gets a version again that was deleted, and restored in the console',
  async (t) => {
    const { token, call } = await story();
    const developer = await machine(await token('ann', 'read', 'write'));
    await developer.push('Contoso.Lost');
    await call('contoso', 'DELETE', '/packages/Contoso.Lost/1.0.0');
    t.regex(await developer.failsToRestore('Contoso.Lost'), /NU110[12]: Unable to find package Contoso\.Lost/);
    await inBrowser(t, 'ada', '/console/deleted', async (page) => {
      await press(page, /Restore.*Contoso\.Lost 1\.0\.0/);
      await sees(page, 'Nothing was deleted that can be restored.');
    });
    await developer.restore('Contoso.Lost');
  },
);

testWith('dockerd', browserCommand)(
  'a release appears in the other company when another person approves it, and docker pulls it by its digest',
  async (t) => {
    const { token, call, host } = await story();
    await call('fabrikam', 'PUT', '/account/promotion', { promote_only: true, approval: 'another', from: ['contoso'] });
    const asker = { kind: 'person', id: 'ann' };
    await call('fabrikam', 'POST', '/grants', { subject: asker, verbs: ['read', 'promote'] });
    const publisher = await dockerAs(await token('ann', 'read', 'write'));
    const released = `${host}/team/shop:v1`;
    await publisher.build(released, 'shop');
    const digest = /digest: (sha256:\w{64})/.exec(await publisher.run('push', released))![1]!;
    await publisher.run('image', 'rm', released);

    let promotion = '';
    await inBrowser(t, 'ann', `/console/images/team%2Fshop/${digest}`, async (page) => {
      await page.getByRole('link', { name: 'Promote…' }).click();
      await page.getByLabel('To the account').fill('fabrikam');
      await page.getByLabel('Under the name').fill('shop');
      await page.getByLabel('Why').fill('release 1');
      await press(page, 'Promote');
      await sees(page, 'Somebody of the other account approves or rejects it.');
      promotion = new URL(page.url()).pathname;
      await page.getByLabel('Account', { exact: true }).selectOption('fabrikam');
      await press(page, 'Use this account');
      await page.waitForURL('**/console/');
      await page.goto(promotion);
      await press(page, 'Approve');
      await sees(page, /Another person approves it/);
    });
    const pulled = `${host}/shop@${digest}`;
    const docker = await dockerAs(await token('fin', 'read'));
    t.regex(await docker.fails('pull', pulled), /not found|manifest unknown/);
    await inBrowser(t, 'fay', promotion, async (page) => {
      await sees(page, 'release 1');
      await press(page, 'Approve');
      await sees(page, 'done');
    });
    await docker.run('pull', pulled);
    t.regex(await docker.run('image', 'inspect', '--format', '{{json .RepoDigests}}', pulled), new RegExp(digest));
    t.regex(await docker.fails('pull', released), /not found: name unknown/);
    const { items } = (await call('fabrikam', 'GET', '/promotions')) as { items: Json[] };
    t.like(items[0], { state: 'done', digest, reason: 'release 1' });
  },
);

testWith('dotnet', 'dockerd')(
  'who is disabled, or has left the group, loses tokens and sessions within a minute, for dotnet and docker',
  async (t) => {
    const { server, token, signIn, call, host } = await story();
    const image = `${host}/team/left:v1`;
    const publisher = await dockerAs(await token('ann', 'read', 'write'));
    await publisher.build(image, 'left');
    await publisher.run('push', image);
    const leave = {
      dan: async () => {
        const { items } = (await call('contoso', 'GET', '/people')) as { items: Json[] };
        const { id } = items.find(({ name }) => name === 'Dan')!;
        await call('contoso', 'POST', `/people/${String(id)}/disable`, { reason: 'left the company' });
      },
      eve: async () => {
        people['eve']!.groups = [];
        await t.throwsAsync(signIn('eve'), { message: /403/ });
      },
    };
    const leavers = [];
    for (const id of Object.keys(leave)) {
      const session = await signIn(id);
      const value = await personalToken(session, server, ['read', 'write']);
      const [developer, docker] = [await machine(value), await dockerAs(value)];
      await developer.push(`Contoso.By.${id}`);
      await docker.run('pull', image);
      leavers.push({ id, session, developer, docker });
    }
    for (const end of Object.values(leave)) await end();
    // The clock stays there: this is the last test.
    server.clock.now = Date.now() + 60_000;
    for (const { id, session, developer, docker } of leavers) {
      t.regex(await developer.failsToPush(`Contoso.After.${id}`), /401 \(The API token is not valid/);
      for (const verb of ['pull', 'push'])
        t.regex(await docker.fails(verb, image), /unauthorized: The API token is not valid/, `${id}: ${verb}`);
      t.is((await session.fetch(`${server.url}/console/my-tokens`)).status, 303, id);
    }
  },
);
