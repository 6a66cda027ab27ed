import { sourceLines, whyOnlySource } from '../runtime/source-lines.ts';

/** The text that the first start prints once: the first token, and commands to paste. `url` is the address for clients. */
export function greeting(url: string, token: string): string {
  const base = reachable(url);
  // Parsed by no parser: an error here would lose the token.
  const host = base.replace(/^https?:\/\//i, '').replace(/\/.*/, '');
  const insecure = base.startsWith('http:') ? ' --allow-insecure-connections' : '';
  return `
Entrepot serves at ${base}. This is its first token; it is not shown again:

  ${token}

Console, which takes the token too:
  ${base}/console/

Container images:
  echo ${token} | docker login ${host} --username api --password-stdin

NuGet packages. ${whyOnlySource}
  ${sourceLines(`${base}/v3/index.json`, token).join('\n  ')}
  dotnet nuget push PACKAGE.nupkg --source entrepot --api-key ${token}${insecure}

Management:
  curl -H "Authorization: Bearer ${token}" ${base}/v1/packages

`;
}

/** Replaces 0.0.0.0 and [::], on which a server can listen but to which a client cannot connect. */
function reachable(url: string): string {
  return url.replace(/\/+$/, '').replace(/^(?<scheme>https?:\/\/)(?:0\.0\.0\.0|\[::\])(?=:|$)/, '$<scheme>127.0.0.1');
}
