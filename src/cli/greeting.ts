/** What the first start prints: the first token, once, and lines to paste. */
export function greeting(url: string, token: string): string {
  const { host } = new URL(url);
  return `
Entrepot serves at ${url}. This is its first token; it is not shown again:

  ${token}

Container images:
  echo ${token} | docker login ${host} --username api --password-stdin

NuGet packages:
  dotnet nuget add source ${url}/v3/index.json --name entrepot --username api --password ${token} --store-password-in-clear-text --allow-insecure-connections
  dotnet nuget push PACKAGE.nupkg --source entrepot --api-key ${token} --allow-insecure-connections

Management:
  curl -H "Authorization: Bearer ${token}" ${url}/v1/packages

`;
}
