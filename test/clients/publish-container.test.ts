import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { execute, requiredCommand, temporaryFolder } from '../support/clients/clients.ts';
import { dotnet } from '../support/clients/dotnet.ts';
import { testWith } from '../support/clients/test-with.ts';
import { tokenOf } from '../support/inside.ts';
import { digestOf, TestRepository, type Descriptor } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';

// `dotnet publish /t:PublishContainer` as docs/clients.md shows it: the SDK reads the base image from the server, and pushes
// the program, without a container engine.

const folder = await temporaryFolder();
const withDotnet = testWith('dotnet', 'tar');

test.after.always(() => folder.remove());

/** A base image without a runtime, which is enough to build on. */
async function pushBase(server: TestServer): Promise<Descriptor> {
  const repository = new TestRepository(server, 'base/runtime');
  const layer = await repository.blob('a layer', 'application/vnd.oci.image.layer.v1.tar+gzip');
  const rootfs = { type: 'layers', diff_ids: [digestOf('the same layer, not compressed')] };
  const settings = JSON.stringify({ architecture: 'amd64', os: 'linux', config: {}, rootfs, history: [{}] });
  const config = await repository.blob(settings, 'application/vnd.oci.image.config.v1+json');
  await repository.image('10.0', { config, layers: [layer] });
  return layer;
}

/** Publishes a program as team/my-app:1.0 of `registry`, in a new home; resolves to the exit code and output. */
async function publish(name: string, registry: string, env: NodeJS.ProcessEnv, credentials?: string) {
  const home = join(folder.path, name);
  const feed = { url: `http://${registry}/v3/index.json`, username: 'api', password: 'unused' };
  const sdk = await dotnet(home, feed, env);
  if (credentials !== undefined) {
    await mkdir(join(home, '.docker'));
    const auth = Buffer.from(`api:${credentials}`).toString('base64');
    await writeFile(join(home, '.docker/config.json'), JSON.stringify({ auths: { [registry]: { auth } } }));
  }
  const project = await sdk.project('My.App', {});
  await writeFile(join(project, 'Program.cs'), 'System.Console.WriteLine("from the image");\n');
  const image = { Registry: registry, BaseImage: `${registry}/base/runtime:10.0`, Repository: 'team/my-app' };
  const properties = Object.entries({ ...image, ImageTag: '1.0' }).map(([key, value]) => `-p:Container${key}=${value}`);
  const args = ['publish', project, '/t:PublishContainer', '-p:EnableSdkContainerSupport=true', ...properties];
  return { run: () => sdk.run(...args), fails: () => sdk.fails(...args) };
}

withDotnet('dotnet publishes a program as an image, with the credentials of docker', async (t) => {
  t.timeout(600_000);
  const server = await startTestServer(t);
  const layer = await pushBase(server);
  const registry = `localhost:${new URL(server.url).port}`;
  const token = await tokenOf(server, ['read', 'write']);
  t.regex(await (await publish('refused', registry, {}, 'ent_wrong')).fails(), /CONTAINER1016|401/);
  t.regex(await (await publish('docker', registry, {}, token)).run(), /Pushed image 'team\/my-app:1\.0'/);

  const repository = new TestRepository(server, 'team/my-app');
  const { layers, config } = (await (await repository.fetch('manifests/1.0')).json()) as {
    layers: Descriptor[];
    config: Descriptor;
  };
  t.is(layers[0]!.digest, layer.digest, 'the layer of the base image');
  const settings = (await (await repository.fetch(`blobs/${config.digest}`)).json()) as {
    config: { Entrypoint: string[] };
  };
  t.deepEqual(settings.config.Entrypoint, ['dotnet', '/app/My.App.dll']);
  const program = join(folder.path, 'program');
  await mkdir(program);
  const content = Buffer.from(await (await repository.fetch(`blobs/${layers.at(-1)!.digest}`)).arrayBuffer());
  await writeFile(join(program, 'layer.tar.gz'), content);
  await execute(requiredCommand('tar'), ['-xzf', join(program, 'layer.tar.gz'), '-C', program]);
  const { stdout } = await execute(requiredCommand('dotnet'), [join(program, 'app/My.App.dll')]);
  t.is(stdout, 'from the image\n');
});

withDotnet(
  'dotnet publishes an image with credentials in the environment, over plain HTTP only to a host that is named',
  async (t) => {
    t.timeout(600_000);
    const server = await startTestServer(t);
    await pushBase(server);
    const { host } = new URL(server.url);
    const env = {
      DOTNET_CONTAINER_REGISTRY_UNAME: 'api',
      DOTNET_CONTAINER_REGISTRY_PWORD: await tokenOf(server, ['read', 'write']),
    };
    t.regex(await (await publish('https', host, env)).fails(), /SSL connection could not be established/);
    const insecure = { ...env, DOTNET_CONTAINER_INSECURE_REGISTRIES: host };
    t.regex(await (await publish('http', host, insecure)).run(), /Pushed image 'team\/my-app:1\.0'/);
    t.is((await new TestRepository(server, 'team/my-app').fetch('manifests/1.0')).status, 200);
  },
);
