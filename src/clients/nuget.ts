import type { Client, ClientFile } from './client.ts';

/**
 * A `nuget.config` with the feed at `index` only, which says why; with `withCredentials`, the token
 * comes from the environment. SDKs take sources of advisories over HTTPS only.
 */
export function nugetConfig(index: string, withCredentials: boolean): string {
  const isPlain = index.startsWith('http:');
  const audit = `
  <auditSources>
    <clear />
    <add key="entrepot" value="${index}" />
  </auditSources>`;
  const credentials = `
  <packageSourceCredentials>
    <entrepot>
      <add key="Username" value="api" />
      <add key="ClearTextPassword" value="%NUGET_TOKEN%" />
    </entrepot>
  </packageSourceCredentials>`;
  return `<?xml version="1.0" encoding="utf-8"?>
<configuration>
  <packageSources>
    <clear />
    <!-- NuGet asks every source for every name: another one would get your private names. -->
    <add key="entrepot" value="${index}" protocolVersion="3"${isPlain ? ' allowInsecureConnections="true"' : ''} />
  </packageSources>
  <packageSourceMapping>
    <clear />
    <packageSource key="entrepot">
      <package pattern="*" />
    </packageSource>
  </packageSourceMapping>${isPlain ? '' : audit}${withCredentials ? credentials : ''}
</configuration>
`;
}

export const dotnetClient: Client = {
  title: 'dotnet and NuGet',
  isFeed: true,
  holdsToken: false,
  text: ({ feed, credentials, ca }) => {
    const content = nugetConfig(`${feed}/v3/index.json`, credentials);
    const files: ClientFile[] = [{ path: 'nuget.config', content, secret: false }];
    if (ca !== undefined) files.push({ path: 'entrepot-ca.crt', content: `${ca}\n`, secret: false });
    const steps = [
      { text: 'Put nuget.config next to the solution, into the repository.', lines: '' },
      ...(credentials
        ? [{ text: 'Put a token into the environment variable NUGET_TOKEN, on each machine.', lines: '' }]
        : []),
      ...(ca === undefined
        ? []
        : [
            {
              text: 'dotnet trusts the authorities of the system. On Debian and Ubuntu:',
              lines:
                'sudo cp entrepot-ca.crt /usr/local/share/ca-certificates/entrepot.crt && sudo update-ca-certificates',
            },
          ]),
    ];
    return { files, steps };
  },
  // Needs no project, and looks for the package in no cache.
  check: (name, version) =>
    `dotnet tool install ${name} --version ${version} --no-http-cache --tool-path entrepot-check`,
};
