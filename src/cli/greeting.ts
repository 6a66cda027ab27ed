/** What the first start prints: the first token, once, and lines to paste. `url` is where clients reach the installation. */
export function greeting(url: string, token: string): string {
  const base = reachable(url);
  const { host, protocol } = new URL(base);
  const insecure = protocol === 'http:' ? ' --allow-insecure-connections' : '';
  return `
Entrepot serves at ${base}. This is its first token; it is not shown again:

  ${token}

Container images:
  echo ${token} | docker login ${host} --username api --password-stdin

NuGet packages:
  dotnet nuget add source ${base}/v3/index.json --name entrepot --username api --password ${token} --store-password-in-clear-text${insecure}
  dotnet nuget push PACKAGE.nupkg --source entrepot --api-key ${token}${insecure}

Management:
  curl -H "Authorization: Bearer ${token}" ${base}/v1/packages

`;
}

/** "Every address" is where a server listens and nowhere a client can go. */
function reachable(url: string): string {
  return url.replace(/\/+$/, '').replace(/^http:\/\/(?:0\.0\.0\.0|\[::\])(?=:|$)/, 'http://127.0.0.1');
}
