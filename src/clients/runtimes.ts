import type { Client, ClientFile, ClientTextOptions, ClientStep } from './client.ts';

// Each container client has a file format of its own. containerd and what is built on it send `?ns=` with the name of the
// registry to a mirror; the others put that name before the name of the image.

const isPlain = ({ registry }: ClientTextOptions) => registry.startsWith('http:');
const hostOf = ({ registry }: ClientTextOptions) => new URL(registry).host;
const tokenOf = ({ token = 'TOKEN' }: ClientTextOptions) => token;
const mirrored = ({ form, registries }: ClientTextOptions) => (form === 'mirror' ? registries : []);

function authorityFile(path: string, { ca }: ClientTextOptions): ClientFile[] {
  return ca === undefined ? [] : [{ path, content: `${ca}\n`, secret: false }];
}

function fileOf(path: string, blocks: readonly string[], secret = false): ClientFile[] {
  return blocks.length === 0 ? [] : [{ path, content: `${blocks.join('\n')}\n`, secret }];
}

/** The lines that let a program keep the token, which asks for it. */
function signIn(program: string, options: ClientTextOptions): ClientStep[] {
  if (!options.credentials) return [];
  const text = `Sign in; ${program} asks for the token:`;
  return [{ text, lines: `${program} login ${hostOf(options)} --username api` }];
}

const passedBy =
  'asks the other registry, too, when this server refuses an image: a policy can be passed by, unless the network blocks the way there. Names that begin with the host of this server have no other way.';

/**
 * A `hosts.toml` of containerd. `server` is asked last: it is this server, unless there is a fallback, and then needs the token,
 * too: a missing image would be reported as 401. Versions before 2 ignore a file without a `host`.
 */
function hostsToml(options: ClientTextOptions, authority: string): string {
  const { registry, credentials, ca } = options;
  const header = `  Authorization = "Bearer ${tokenOf(options)}"`;
  const trust = ca === undefined ? [] : [`ca = "${authority}"`];
  const server = [`server = "${registry}"`, ...trust, '', ...(credentials ? ['[header]', header, ''] : [])];
  const hasFallback = options.fallback && options.form === 'mirror';
  return [
    ...(hasFallback ? [] : server),
    `[host."${registry}"]`,
    '  capabilities = ["pull", "resolve"]',
    ...trust.map((line) => `  ${line}`),
    ...(credentials ? [`  [host."${registry}".header]`, `  ${header}`] : []),
    '',
  ].join('\n');
}

const certs = '/etc/containerd/certs.d';

export const containerd: Client = {
  title: 'containerd',
  isFeed: false,
  holdsToken: true,
  takesPorts: true,
  text: (options) => {
    const authority = `${certs}/${hostOf(options)}/ca.crt`;
    const names = options.form === 'mirror' ? options.registries : [hostOf(options)];
    const content = hostsToml(options, authority);
    return {
      files: [
        ...names.map((name) => ({ path: `${certs}/${name}/hosts.toml`, content, secret: options.credentials })),
        ...authorityFile(authority, options),
      ],
      steps: [
        {
          text: 'Name the folder in /etc/containerd/config.toml, and restart containerd. One folder alone: since 2.1, a list of folders is not read. A table "mirrors" or "configs" of the registry must not be there. containerd 2:',
          lines: `version = 3\n[plugins."io.containerd.cri.v1.images".registry]\n  config_path = "${certs}"`,
        },
        {
          text: 'containerd 1:',
          lines: `version = 2\n[plugins."io.containerd.grpc.v1.cri".registry]\n  config_path = "${certs}"`,
        },
      ],
    };
  },
  check: (name, tag) => `crictl pull ${name}:${tag}`,
};

const k3sFolder = '/etc/rancher/k3s';

export const k3s: Client = {
  title: 'k3s and RKE2',
  isFeed: false,
  holdsToken: true,
  takesPorts: true,
  text: (options) => {
    const { registry, credentials, ca, fallback } = options;
    const authority = `${k3sFolder}/entrepot-ca.crt`;
    const names = mirrored(options);
    // containerd takes http from the address of an endpoint.
    const endpoints = names.length > 0 ? names : isPlain(options) ? [hostOf(options)] : [];
    const lines = [
      ...(endpoints.length > 0 ? ['mirrors:'] : []),
      ...endpoints.flatMap((name) => [`  "${name}":`, '    endpoint:', `      - "${registry}"`]),
      ...(credentials || ca !== undefined ? ['configs:', `  "${hostOf(options)}":`] : []),
      ...(credentials ? ['    auth:', '      username: api', `      password: "${tokenOf(options)}"`] : []),
      ...(ca === undefined ? [] : ['    tls:', `      ca_file: ${authority}`]),
    ];
    const noFallback = fallback || names.length === 0 ? [] : ['disable-default-registry-endpoint: true'];
    return {
      files: [
        ...fileOf(`${k3sFolder}/registries.yaml`, lines, credentials),
        ...fileOf(`${k3sFolder}/config.yaml.d/entrepot.yaml`, noFallback),
        ...authorityFile(authority, options),
      ],
      steps: [
        { text: 'On each node, then restart k3s:', lines: 'systemctl restart k3s || systemctl restart k3s-agent' },
        { text: 'RKE2 reads the same files in /etc/rancher/rke2/.', lines: '' },
      ],
    };
  },
  check: (name, tag) => `k3s crictl pull ${name}:${tag}`,
};

const documentOf = (kind: string, name: string, ...lines: string[]) =>
  ['apiVersion: v1alpha1', `kind: ${kind}`, `name: ${name}`, ...lines].join('\n');

export const talos: Client = {
  title: 'Talos',
  isFeed: false,
  holdsToken: true,
  text: (options) => {
    const { registry, credentials, ca, fallback } = options;
    const documents = [
      ...mirrored(options).map((name) =>
        documentOf(
          'RegistryMirrorConfig',
          name,
          'endpoints:',
          `  - url: ${registry}/v2/${name}`,
          '    overridePath: true',
          ...(fallback ? [] : ['skipFallback: true']),
        ),
      ),
      ...(options.form === 'prefix' && isPlain(options)
        ? [documentOf('RegistryMirrorConfig', hostOf(options), 'endpoints:', `  - url: ${registry}`)]
        : []),
      ...(credentials
        ? [documentOf('RegistryAuthConfig', hostOf(options), 'username: api', `password: "${tokenOf(options)}"`)]
        : []),
      ...(ca === undefined ? [] : [documentOf('RegistryTLSConfig', hostOf(options), 'ca: |-', ...indented(ca))]),
    ];
    const path = 'entrepot-registries.yaml';
    return {
      files: fileOf(path, documents.length === 0 ? [] : [documents.join('\n---\n')], credentials),
      steps: [
        {
          text: 'Talos 1.12 and later, for each node:',
          lines: `talosctl --nodes NODE patch machineconfig --patch @${path}`,
        },
      ],
    };
  },
  check: (name, tag) => `talosctl --nodes NODE image pull --namespace cri ${name}:${tag}`,
};

/** The tables of `registries.conf` (containers-registries.conf(5)). Without a fallback, names lead here instead. */
function registriesConf(options: ClientTextOptions): string[] {
  const host = hostOf(options);
  const insecure = isPlain(options) ? ['insecure = true'] : [];
  const tables = mirrored(options).map((name) => {
    const place = `location = "${host}/${name}"`;
    const lines = options.fallback
      ? [`prefix = "${name}"`, `location = "${name}"`, '', '[[registry.mirror]]', place, ...insecure]
      : [`prefix = "${name}"`, place, ...insecure];
    return ['[[registry]]', ...lines, ''].join('\n');
  });
  // For names that begin with this host.
  if (isPlain(options)) tables.push(['[[registry]]', `location = "${host}"`, 'insecure = true', ''].join('\n'));
  return tables.length === 0 ? [] : [tables.join('\n').trimEnd()];
}

function containersFiles(options: ClientTextOptions): ClientFile[] {
  return [
    ...fileOf('/etc/containers/registries.conf.d/entrepot.conf', registriesConf(options)),
    ...authorityFile(`/etc/containers/certs.d/${hostOf(options)}/ca.crt`, options),
  ];
}

export const podman: Client = {
  title: 'podman, buildah, skopeo',
  isFeed: false,
  holdsToken: false,
  text: (options) => ({ files: containersFiles(options), steps: signIn('podman', options) }),
  check: (name, tag) => `podman pull ${name}:${tag}`,
};

export const crio: Client = {
  title: 'CRI-O',
  isFeed: false,
  holdsToken: true,
  text: (options) => {
    const file = '/etc/crio/entrepot-auth.json';
    const { token, credentials } = options;
    const auth = token === undefined ? 'BASE64 OF api:TOKEN' : Buffer.from(`api:${token}`).toString('base64');
    const json = JSON.stringify({ auths: { [hostOf(options)]: { auth } } }, undefined, 2);
    return {
      files: [
        ...containersFiles(options),
        ...(credentials
          ? [
              ...fileOf('/etc/crio/crio.conf.d/50-entrepot.conf', ['[crio.image]', `global_auth_file = "${file}"`]),
              ...fileOf(file, [json], true),
            ]
          : []),
      ],
      steps: [
        ...(credentials && token === undefined
          ? [{ text: 'The text after "auth" is api:TOKEN in Base64.', lines: '' }]
          : []),
        { text: 'On each node, then:', lines: 'systemctl restart crio' },
      ],
    };
  },
  check: (name, tag) => `crictl pull ${name}:${tag}`,
};

export const openshift: Client = {
  title: 'OpenShift',
  isFeed: false,
  holdsToken: false,
  text: (options) => {
    const { ca, credentials, fallback } = options;
    const host = hostOf(options);
    const policy = fallback ? 'AllowContactingSource' : 'NeverContactSource';
    const setOf = (kind: string, field: string, names: readonly string[]) => [
      'apiVersion: config.openshift.io/v1',
      `kind: ${kind}`,
      'metadata:',
      '  name: entrepot',
      'spec:',
      `  ${field}:`,
      ...names.flatMap((name) => [
        `    - source: ${name}`,
        '      mirrors:',
        `        - ${host}/${name}`,
        `      mirrorSourcePolicy: ${policy}`,
      ]),
    ];
    const names = mirrored(options);
    const authority = (pem: string) => [
      'apiVersion: v1',
      'kind: ConfigMap',
      'metadata:',
      '  name: entrepot-ca',
      '  namespace: openshift-config',
      'data:',
      // A colon cannot be in a key.
      `  ${host.replace(':', '..')}: |-`,
      ...indented(pem),
    ];
    const documents = [
      ...(names.length === 0
        ? []
        : [
            setOf('ImageDigestMirrorSet', 'imageDigestMirrors', names),
            setOf('ImageTagMirrorSet', 'imageTagMirrors', names),
          ]),
      ...(ca === undefined ? [] : [authority(ca)]),
    ];
    const path = 'entrepot-mirrors.yaml';
    const trust = '{"spec":{"additionalTrustedCA":{"name":"entrepot-ca"}}}';
    const secret = 'secret/pull-secret --namespace openshift-config';
    return {
      files: fileOf(path, documents.length === 0 ? [] : [documents.map((each) => each.join('\n')).join('\n---\n')]),
      steps: [
        ...(documents.length > 0
          ? [{ text: 'Apply it; the nodes restart one after another:', lines: `oc apply --filename ${path}` }]
          : []),
        ...(ca === undefined
          ? []
          : [
              {
                text: 'Trust the authority:',
                lines: `oc patch image.config.openshift.io/cluster --type merge --patch '${trust}'`,
              },
            ]),
        ...(credentials
          ? [
              {
                text: 'Add the token to the pull secret of the cluster; podman asks for it:',
                lines: [
                  'umask 077',
                  `oc get ${secret} --template='{{index .data ".dockerconfigjson" | base64decode}}' > pull-secret.json`,
                  `podman login ${host} --username api --authfile pull-secret.json`,
                  `oc set data ${secret} --from-file=.dockerconfigjson=pull-secret.json`,
                  'rm pull-secret.json',
                ].join('\n'),
              },
            ]
          : []),
        ...(isPlain(options)
          ? [
              {
                text: 'OpenShift needs HTTPS, or this host in registrySources.insecureRegistries of image.config.openshift.io/cluster.',
                lines: '',
              },
            ]
          : []),
      ],
    };
  },
  check: (name, tag) => `oc debug node/NODE -- chroot /host crictl pull ${name}:${tag}`,
};

const hubOnly = 'docker uses a mirror for Docker Hub only';

export const docker: Client = {
  title: 'docker',
  isFeed: false,
  holdsToken: false,
  takesPorts: true,
  text: (options) => {
    const host = hostOf(options);
    const names = mirrored(options);
    const isMirror = names.includes('docker.io');
    const none = `${hubOnly}, and docker.io is not among the registries. Begin the names of images with ${host}/.`;
    const settings = {
      ...(isMirror && { 'registry-mirrors': [options.registry] }),
      ...(isPlain(options) && { 'insecure-registries': [host] }),
    };
    const isEmpty = Object.keys(settings).length === 0;
    const steps: ClientStep[] = [
      ...(isEmpty
        ? []
        : [
            {
              text: 'If there is a daemon.json already, add these keys to it. Then:',
              lines: 'systemctl restart docker',
            },
          ]),
      ...(isMirror
        ? [
            {
              text: `${hubOnly}, sends it no credentials (set ENTREPOT_ANONYMOUS_READ=mirrored here), and ${passedBy}`,
              lines: '',
            },
          ]
        : [...(names.length > 0 ? [{ text: none, lines: '' }] : []), ...signIn('docker', options)]),
    ];
    return {
      files: [
        ...fileOf('/etc/docker/daemon.json', isEmpty ? [] : [JSON.stringify(settings, undefined, 2)]),
        ...authorityFile(`/etc/docker/certs.d/${host}/ca.crt`, options),
      ],
      steps,
    };
  },
  check: (name, tag) => `docker pull ${name}:${tag}`,
};

export const buildkit: Client = {
  title: 'BuildKit',
  isFeed: false,
  holdsToken: false,
  text: (options) => {
    const { ca } = options;
    const host = hostOf(options);
    const authority = '/etc/buildkit/entrepot-ca.crt';
    const own = [
      ...(isPlain(options) ? ['  http = true'] : []),
      ...(ca === undefined ? [] : [`  ca = ["${authority}"]`]),
    ];
    const blocks = [
      ...mirrored(options).map((name) => `[registry."${name}"]\n  mirrors = ["${host}/${name}"]`),
      ...(own.length > 0 ? [[`[registry."${host}"]`, ...own].join('\n')] : []),
    ];
    const path = '/etc/buildkit/buildkitd.toml';
    return {
      files: [...fileOf(path, blocks.length === 0 ? [] : [blocks.join('\n\n')]), ...authorityFile(authority, options)],
      steps: [
        ...(blocks.length === 0
          ? []
          : [
              {
                text: 'buildkitd reads it at its start. For a builder of docker buildx:',
                lines: `docker buildx create --use --driver docker-container --buildkitd-config ${path}`,
              },
            ]),
        ...signIn('docker', options),
        ...(options.form === 'mirror' ? [{ text: `BuildKit ${passedBy}`, lines: '' }] : []),
      ],
    };
  },
  check: (name, tag) => `printf 'FROM ${name}:${tag}\\n' | docker buildx build --no-cache -`,
};

function indented(pem: string): string[] {
  return pem.split('\n').map((line) => `    ${line}`);
}
