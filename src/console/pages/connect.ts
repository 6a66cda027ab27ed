import { clientList } from '../../api/clients/clients.ts';
import { account } from '../../api/framework/schemas.ts';
import { newToken } from '../../api/framework/token-schemas.ts';
import { anyCertificate, clientKinds, clients, clientText, type ClientKind } from '../../clients/client.ts';
import { nugetConfig } from '../../clients/nuget.ts';
import { typed } from '../../runtime/command-name.ts';
import { sourceLines, whyOnlySource } from '../../runtime/source-lines.ts';
import { fieldErrors, Form, fieldOf } from '../framework/form.ts';
import { lines } from '../framework/format.ts';
import { html, type Html } from '../framework/html.ts';
import { may } from '../framework/layout.ts';
import type { Page, PageCall } from '../framework/page.ts';

const title = 'Connect your clients';

/** How long a token of this page is valid at most; milliseconds. */
const lifetime = 90 * 86_400_000;

/** Commands for each client, filled in with this server's address. */
export const connectPage: Page = {
  path: '/connect',
  section: 'connect',
  action: 'read',
  show: async (call) => {
    const { principal, api } = call;
    const connected =
      principal.kind === 'anonymous' ? undefined : (await api.call('getAccount', account)).usage.is_used;
    return { title, body: await connectLines(call, connected), json: '/v1/clients' };
  },
  send: async (call) => {
    const { api, form, principal } = call;
    const body = { name: fieldOf(form, 'name'), scopes: fieldOf(form, 'scopes').split(' '), ...endOf(call) };
    try {
      const operation = principal.kind === 'person' ? 'createOwnToken' : 'createToken';
      const { token } = await api.call(operation, newToken, { body });
      return { title, body: await connectLines(call, undefined, token), status: 201 };
    } catch (error) {
      return { refused: new Form(form, fieldErrors(error)) };
    }
  },
};

/** The end of a token that this page makes. A personal token has an end of its own, and none ends after the visitor's token. */
function endOf({ principal, now }: PageCall) {
  const end = now + lifetime;
  if (principal.kind === 'person' || endsBefore(principal, end)) return {};
  return { expires_at: new Date(end).toISOString() };
}

/** Whether the visitor's token ends before that time. */
function endsBefore(principal: PageCall['principal'], end: number): boolean {
  return principal.kind === 'token' && principal.expiresAt !== null && principal.expiresAt < end;
}

/** The form that makes a token for the lines; without the right to make one, what to put into them. */
function tokenForm({ principal, refused, now }: PageCall): Html {
  if (principal.kind !== 'person' && !may(principal, 'admin')) {
    return html`<p>
      Put an API token in the place of TOKEN: one with the scope <code>read</code> for building, and
      <code>write</code> for publishing.
    </p>`;
  }
  const owner = principal.kind === 'person' ? principal.personName : principal.accountName;
  const form = refused ?? new Form({ name: `a machine of ${owner}`.slice(0, 200) });
  const scopes = [
    ['read', 'build: read'],
    ['read write', 'build and publish: read and write'],
  ] as const;
  return html`<form method="post" action="/console/connect" class="panel narrow">
    <h2>A token for this machine</h2>
    ${form.error('form')} ${form.input('name', 'Name', { attributes: html`required maxlength="200"` })}
    ${form.select('scopes', 'To', may(principal, 'write') ? scopes : scopes.slice(0, 1))}
    <button class="primary">Create a token and fill it in below</button>
    <p class="hint">
      It expires ${endsBefore(principal, now + lifetime) ? 'with your own token' : 'after 90 days'}.
      ${
        principal.kind === 'person' &&
        html`It can do at most what you can, and ends when you lose the rights.
          <a href="/console/my-tokens">Your tokens</a>`
      }
      Or put a token that you have in the place of TOKEN.
    </p>
  </form>`;
}

/** The parts of the page, by their anchors. */
const parts = {
  dotnet: 'dotnet and NuGet',
  ide: 'Visual Studio and Rider',
  docker: 'docker',
  podman: 'podman, buildah, skopeo',
  github: 'GitHub Actions',
  gitlab: 'GitLab CI',
  kubernetes: 'Kubernetes',
  mirrors: 'As a mirror',
  debuggers: 'Debuggers',
  curl: 'curl',
};

/** The lines with `token`, or a form that makes one; and whether the first request of a client was seen; undefined for an anonymous visitor. */
export async function connectLines(call: PageCall, connected: boolean | undefined, token = 'TOKEN'): Promise<Html> {
  const { urls } = call;
  const { base, feed, registry } = urls;
  const host = new URL(registry).host;
  const isPlain = registry.startsWith('http:');
  const insecure = feed.startsWith('http:') ? ' --allow-insecure-connections' : '';
  const index = `${feed}/v3/index.json`;
  return html`${seen(connected)}
    ${
      token === 'TOKEN'
        ? tokenForm(call)
        : html`<p class="warning" role="status">
            The token is in the lines below. This is the only time that it is shown.
          </p>`
    }
    <nav class="pages" aria-label="Clients">
      ${Object.entries(parts).map(([id, text]) => html`<a href="#${id}">${text}</a>`)}
    </nav>
    <p class="hint">The lines for a terminal work in bash, PowerShell and cmd, those of a CI in bash.</p>
    <section id="dotnet">
      <h2>dotnet and NuGet</h2>
      <p>${whyOnlySource} These lines remove it, and add this feed:</p>
      ${lines(sourceLines(index, token).join('\n'), 'the lines that make this feed the only source')}
      <p>Publish a package:</p>
      ${lines(`dotnet nuget push PACKAGE.nupkg --source entrepot --api-key ${token}${insecure}`, 'the line that publishes')}
      ${nugetConfigPart(index, 'nuget.config of a repository')}
    </section>
    <section id="ide">
      <h2>Visual Studio and Rider</h2>
      <p>
        Both read the <code>nuget.config</code> above. Or, in Visual Studio:
        <em>Tools › Options › NuGet Package Manager › Package Sources</em>; in Rider:
        <em>Settings › Build, Execution, Deployment › NuGet › Sources</em>. Add this address, and remove nuget.org, so
        that it gets no private names. The user name is <code>api</code>, the password is a token.
      </p>
      ${lines(index, 'the address of the feed')}
    </section>
    <section id="docker">
      <h2>docker</h2>
      ${lines(`echo ${token}| docker login ${host} --username api --password-stdin`, 'the line that signs docker in')}
      ${lines(`docker pull ${host}/alpine\ndocker tag ${host}/alpine ${host}/team/app:1.0\ndocker push ${host}/team/app:1.0`, 'a pull, a name for an image, and a push')}
      ${
        isPlain &&
        html`<p class="hint">
          This address has no HTTPS. docker accepts that for loopback addresses only; for others, add
          <code>{"insecure-registries": ["${host}"]}</code> to <code>/etc/docker/daemon.json</code>, or use HTTPS.
        </p>`
      }
    </section>
    <section id="podman">
      <h2>podman, buildah, skopeo</h2>
      ${lines(
        `echo ${token}| podman login ${host} --username api --password-stdin${isPlain ? ' --tls-verify=false' : ''}\npodman pull ${isPlain ? '--tls-verify=false ' : ''}${host}/alpine`,
        'the lines for podman',
      )}
    </section>
    <section id="github">
      <h2>GitHub Actions</h2>
      <p>
        Without a secret: <a href="/console/publishers">a rule for a CI</a> lets a workflow exchange its identity for a
        token. With a secret <code>ENTREPOT_TOKEN</code>:
      </p>
      ${lines(actionsSteps(index, host), 'steps of a workflow')}
    </section>
    <section id="gitlab">
      <h2>GitLab CI</h2>
      <p>With a masked variable <code>ENTREPOT_TOKEN</code>, or with a rule for a CI as above:</p>
      ${lines(gitlabJob(index, host), 'a job of .gitlab-ci.yml')}
    </section>
    <section id="kubernetes">
      <h2>Kubernetes</h2>
      <p>Pull one image on a node:</p>
      ${lines(
        `ctr images pull ${isPlain ? '--plain-http ' : ''}--user api:${token} ${host}/team/app:1.0`,
        'the line that pulls an image',
      )}
      <p>A secret for <code>imagePullSecrets</code>, for images whose name begins with <code>${host}/</code>:</p>
      ${lines(
        `kubectl create secret docker-registry entrepot --docker-server=${host} --docker-username=api --docker-password=${token}`,
        'the line that creates a pull secret',
      )}
    </section>
    ${await mirrorPart(call, token)}
    <section id="debuggers">
      <h2>Debuggers</h2>
      <p>The address of the symbol server. It takes a token as the password of any user name:</p>
      ${lines(`${feed}/v3/symbols`, 'the address of the symbol server')}
      ${lines(
        `dotnet-symbol --symbols --authenticated-server-path ${token} ${feed}/v3/symbols FILE.dll`,
        'the line that downloads symbols',
      )}
    </section>
    <section id="curl">
      <h2>curl</h2>
      ${lines(`curl --header "Authorization: Bearer ${token}" ${base}/v1/packages`, 'a request to the API')}
    </section>`;
}

function seen(connected: boolean | undefined): Html | undefined {
  if (connected === undefined) return undefined;
  if (!connected) {
    return html`<p class="waiting" data-refresh="3000" role="status">
      <strong>Waiting for your first request.</strong> Run one of the lines below; this page notices it within seconds.
      <a href="">Check now</a>
    </p>`;
  }
  return html`<p class="notice" role="status"><strong>Seen.</strong> A client of this account has used the server.</p>`;
}

/** The files of clients that get public images through this server, as the visitor chooses. */
async function mirrorPart({ api, urls, query, principal }: PageCall, token: string): Promise<Html> {
  const { registries } = await api.call('listClients', clientList);
  const form = query['form'] === 'prefix' || registries.length === 0 ? 'prefix' : 'mirror';
  const options = {
    ...urls,
    registries,
    form,
    fallback: query['fallback'] === '1',
    ca: query['ca'] === '1' ? anyCertificate : undefined,
    credentials: principal.kind !== 'anonymous',
    ...(token !== 'TOKEN' && { token }),
  } as const;
  const choice = (key: 'fallback' | 'ca', text: string) =>
    html`<label
      ><input type="checkbox" name="${key}" value="1" ${query[key] === '1' && html`checked`} /> ${text}</label
    >`;
  return html`<section id="mirrors">
    <h2>As a mirror</h2>
    <p>
      Names of public images stay as they are, and the client asks this server. <code>${typed('client')}</code> prints
      these files, too, writes them, and <code>${typed('client check')}</code> shows whether a client uses them.
    </p>
    <form method="get" action="/console/connect#mirrors" class="panel narrow">
      <label
        ><input type="checkbox" name="form" value="prefix" ${form === 'prefix' && html`checked`} /> names begin with
        ${new URL(urls.registry).host} instead</label
      >
      ${choice('fallback', 'ask the other registry, if this server does not have an image')}
      ${choice('ca', 'this server has a certificate of a private authority')}
      <button>Show</button>
    </form>
    ${clientKinds.filter((kind) => !clients[kind].isFeed).map((kind) => clientPart(kind, clientText(kind, options)))}
  </section>`;
}

function clientPart(kind: ClientKind, { files, steps }: ReturnType<typeof clientText>): Html {
  return html`<details id="mirror-${kind}">
    <summary>${clients[kind].title}</summary>
    ${files.map(
      ({ path, content, secret }) =>
        html`<p><code>${path}</code>${secret && html`, which only its owner may read: <code>chmod 600</code>`}</p>
          ${lines(content.trimEnd(), `the file ${path}`)}`,
    )}
    ${steps.map(
      (step) =>
        html`<p>${step.text}</p>
          ${step.lines !== '' && lines(step.lines, step.text.slice(0, 100))}`,
    )}
  </details>`;
}

function actionsSteps(index: string, host: string): string {
  return `- run: |
    ${sourceLines(index, '${{ secrets.ENTREPOT_TOKEN }}').join(' || true\n    ')}
- run: dotnet restore
- run: echo "\${{ secrets.ENTREPOT_TOKEN }}" | docker login ${host} --username api --password-stdin`;
}

function gitlabJob(index: string, host: string): string {
  return `build:
  script:
    - ${sourceLines(index, '$ENTREPOT_TOKEN').join(' || true\n    - ')}
    - dotnet restore
    - echo "$ENTREPOT_TOKEN" | docker login ${host} --username api --password-stdin`;
}

/** A `nuget.config` with the feed at `index`, folded; with credentials, unless the visitor reads without a token. */
export function nugetConfigPart(index: string, summary: string, withCredentials = true): Html {
  return html`<details>
    <summary>${summary}</summary>
    ${lines(nugetConfig(index, withCredentials).trimEnd(), 'the file nuget.config')}
    ${
      withCredentials &&
      html`<p>
        NuGet replaces <code>%NUGET_TOKEN%</code> by the environment variable of this name, on each system. Put a token
        in it.
      </p>`
    }
  </details>`;
}
