/** Why the public feed is removed, as one sentence. */
export const whyOnlySource =
  'NuGet asks every source for every name: nuget.org as a second source would get your private names. Entrepot serves its packages, too.';

/**
 * Lines for any shell that make the feed with this service index the only source of NuGet. They can be repeated: where a source is
 * missing, dotnet says so, and the next line works.
 */
export function sourceLines(index: string, token: string): string[] {
  const insecure = index.startsWith('http:') ? ' --allow-insecure-connections' : '';
  return [
    'dotnet nuget remove source nuget.org',
    'dotnet nuget remove source entrepot',
    `dotnet nuget add source ${index} --name entrepot --username api --password ${token} --store-password-in-clear-text${insecure}`,
  ];
}
