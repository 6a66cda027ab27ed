import { DomainError } from '../runtime/errors.ts';
import { dotnetClient } from './nuget.ts';
import { buildkit, containerd, crio, docker, k3s, openshift, podman, talos } from './runtimes.ts';

/** What a configuration is made for. Hosts, names and the token have no characters that a format would need to escape. */
export interface ClientTextOptions {
  /** The addresses of the feed and of the registry, without a slash at the end. */
  feed: string;
  registry: string;
  /** The registries that this server mirrors, by the names that images begin with. */
  registries: readonly string[];
  /** `mirror`: names stay as they are, and the client asks this server. `prefix`: names begin with the host of this server. */
  form: ClientForm;
  /** Whether the client asks the other registry, if this server does not have an image. */
  fallback: boolean;
  /** The certificate of the authority that signed the certificate of this server, PEM; undefined if clients trust it already. */
  ca?: string | undefined;
  /** Whether the server needs a token. */
  credentials: boolean;
  /** Stands in the place of `TOKEN`. */
  token?: string | undefined;
}

export const clientForms = ['mirror', 'prefix'] as const;
export type ClientForm = (typeof clientForms)[number];

/** A file of a client. */
export interface ClientFile {
  /** From the root of the machine; for a file of a repository or for another tool, a name alone. */
  path: string;
  content: string;
  /** Whether it contains the token. */
  secret: boolean;
}

/** What is to do beside the files. */
export interface ClientStep {
  text: string;
  /** To type or to add to a file; empty if there is nothing to copy. */
  lines: string;
}

/** The configuration of a client. */
export interface ClientText {
  files: ClientFile[];
  steps: ClientStep[];
}

/** What is known of a client. */
export interface Client {
  title: string;
  /** Whether it gets packages, and not images. */
  isFeed: boolean;
  /** Whether a file of it contains the token; the others keep it themselves, or read it from the environment. */
  holdsToken: boolean;
  /** Whether its mirrors may have a port in their names; others put the name into the path, where a port cannot be. */
  takesPorts?: true;
  text: (options: ClientTextOptions) => ClientText;
  /** The line that asks for a name, on the machine of the client. It fails where the name cannot be had. */
  check: (name: string, reference: string) => string;
}

export const clientKinds = [
  'dotnet',
  'docker',
  'podman',
  'containerd',
  'k3s',
  'crio',
  'talos',
  'openshift',
  'buildkit',
] as const;
export type ClientKind = (typeof clientKinds)[number];

/** The clients for which this server writes configurations. */
export const clients: Readonly<Record<ClientKind, Client>> = {
  dotnet: dotnetClient,
  docker,
  podman,
  containerd,
  k3s,
  crio,
  talos,
  openshift,
  buildkit,
};

/** Stands in the place of a certificate. */
export const anyCertificate = '-----BEGIN CERTIFICATE-----\nCERTIFICATE\n-----END CERTIFICATE-----';

/**
 * The configuration of a client. Throws `Invalid` for what it cannot have, and for a value with characters that files would need to
 * escape.
 */
export function clientText(kind: ClientKind, options: ClientTextOptions): ClientText {
  const { feed, registry, registries, token } = options;
  const refuse = (message: string) => new DomainError('Invalid', `${kind}: ${message}`);
  const { isFeed, takesPorts, text } = clients[kind];
  for (const url of [feed, registry])
    if (!plainUrl.test(url)) throw refuse(`${url} cannot be the address of this server.`);
  const wrong = registries.find((each) => !plainRegistry.test(each));
  if (wrong !== undefined) throw refuse(`"${wrong}" is not the name of a registry, such as docker.io.`);
  if (token !== undefined && !plainToken.test(token)) throw refuse('The token has characters that no token has.');
  if (isFeed && options.fallback) {
    throw refuse(
      'NuGet asks every source for every name, so another one would get your private names. There is no fallback; this server has the packages of its upstreams.',
    );
  }
  if (!isFeed && options.form === 'mirror' && registries.length === 0) {
    throw refuse('This server mirrors no registry for this account. Use the form "prefix".');
  }
  if (isFeed || takesPorts || options.form !== 'mirror') return text(options);
  const [withPort, others] = [registries.filter(hasPort), registries.filter((each) => !hasPort(each))];
  const { files, steps } = text({ ...options, registries: others });
  return { files, steps: withPort.length === 0 ? steps : [...steps, leftOut(withPort)] };
}

/** Whether the name of a registry has a port. Names of images at this server cannot have one behind its host. */
export function hasPort(registry: string): boolean {
  return registry.includes(':');
}

function leftOut(names: readonly string[]): ClientStep {
  const text = `Left out: ${names.join(', ')}. The name of an image at this server cannot have a port in it. Give the upstream a name without a port, its address as the url, and begin the names of images with the host of this server.`;
  return { text, lines: '' };
}

const plainUrl = /^https?:\/\/(?:[\w.-]{1,253}|\[[0-9a-f:.]+\])(?::\d{1,5})?(?:\/[\w./-]{0,200})?$/i;
const plainRegistry = /^[a-z0-9]+(?:[.-][a-z0-9]+)*(?::\d{1,5})?$/;
/** That of a bearer token (RFC 6750, 2.1). */
const plainToken = /^[\w.~+/-]{1,2000}=*$/;
