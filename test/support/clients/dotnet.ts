import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { commandLine, requiredCommand, type CommandLine } from './clients.ts';

// The .NET SDK as one user with one package source. The SDK includes everything for a net10.0 library or console program,
// so it requests only the packages of the test from the feed.

export interface Feed {
  /** The service index. */
  url: string;
  username: string;
  password: string;
}

export interface PackageSource {
  id: string;
  version: string;
  /** Package id → version range. */
  dependencies?: Record<string, string>;
  /** With the name of a command, the package is a tool. */
  tool?: string;
  symbols?: boolean;
}

export interface Dotnet extends CommandLine {
  folder: string;
  /** Builds a package; resolves to its path. */
  pack(source: PackageSource): Promise<string>;
  /** Creates a console program that uses these packages, without a restore; resolves to its folder. */
  project(name: string, references: Record<string, string>): Promise<string>;
}

export const sourceName = 'entrepot';

/** Keeps all that dotnet and NuGet write in `folder`, and lets no build server outlive the test. */
export function dotnetEnvironment(folder: string): NodeJS.ProcessEnv {
  const at = (name: string): string => join(folder, name);
  return {
    PATH: process.env.PATH,
    HOME: folder,
    LANG: 'C.UTF-8',
    DOTNET_CLI_HOME: at('cli'),
    DOTNET_NOLOGO: 'true',
    DOTNET_CLI_TELEMETRY_OPTOUT: 'true',
    DOTNET_CLI_WORKLOAD_UPDATE_NOTIFY_DISABLE: 'true',
    DOTNET_GENERATE_ASPNET_CERTIFICATE: 'false',
    DOTNET_CLI_USE_MSBUILD_SERVER: 'false',
    // No build server may keep running after the test.
    MSBUILDDISABLENODEREUSE: '1',
    UseSharedCompilation: 'false',
    NUGET_PACKAGES: at('packages'),
    NUGET_HTTP_CACHE_PATH: at('http-cache'),
    NUGET_PLUGINS_CACHE_PATH: at('plugins-cache'),
    NUGET_SCRATCH: at('scratch'),
    NUGET_CERT_REVOCATION_MODE: 'offline',
  };
}

/** `more` is added to its environment. */
export async function dotnet(folder: string, feed: Feed, more: NodeJS.ProcessEnv = {}): Promise<Dotnet> {
  const at = (name: string): string => join(folder, name);
  await mkdir(folder, { recursive: true });
  await writeFile(at('nuget.config'), configuration(feed));
  const env = { ...dotnetEnvironment(folder), ...more };
  const cli = commandLine('dotnet', requiredCommand('dotnet'), [], { env, cwd: folder });

  const pack = async (source: PackageSource): Promise<string> => {
    const project = at(`src/${source.id}.${source.version}`);
    await writeProject(
      project,
      source.id,
      {
        PackageId: source.id,
        Version: source.version,
        Authors: 'test',
        ...(source.tool === undefined ? {} : { OutputType: 'Exe', PackAsTool: 'true', ToolCommandName: source.tool }),
        ...(source.symbols === true ? { IncludeSymbols: 'true', SymbolPackageFormat: 'snupkg' } : {}),
      },
      source.dependencies ?? {},
    );
    const code =
      source.tool === undefined
        ? `public static class ${identifier(source.id)} { public const string Version = "${source.version}"; }`
        : `System.Console.WriteLine("${source.id} ${source.version}");`;
    await writeFile(join(project, 'Code.cs'), code);
    await cli.run('pack', project, '--configuration', 'Release', '--output', at('out'), '--verbosity', 'quiet');
    return at(`out/${source.id}.${source.version}.nupkg`);
  };
  const project = async (name: string, references: Record<string, string>): Promise<string> => {
    const path = at(name);
    await writeProject(path, name, { OutputType: 'Exe' }, references);
    const values = Object.keys(references).map((id) => `System.Console.WriteLine(${identifier(id)}.Version);`);
    await writeFile(join(path, 'Program.cs'), `${values.join('\n')}\n`);
    return path;
  };
  return { ...cli, folder, pack, project };
}

function identifier(id: string): string {
  return id.replaceAll(/\W/g, '_');
}

async function writeProject(
  folder: string,
  name: string,
  properties: Record<string, string>,
  references: Record<string, string>,
): Promise<void> {
  const settings = Object.entries({ TargetFramework: 'net10.0', UseAppHost: 'false', ...properties });
  const lines = settings.map(([key, value]) => `<${key}>${value}</${key}>`);
  const items = Object.entries(references).map(
    ([id, range]) => `<PackageReference Include="${id}" Version="${range}" />`,
  );
  await mkdir(folder, { recursive: true });
  await writeFile(
    join(folder, `${name}.csproj`),
    `<Project Sdk="Microsoft.NET.Sdk">
<PropertyGroup>${lines.join('')}</PropertyGroup>
<ItemGroup>${items.join('')}</ItemGroup>
</Project>
`,
  );
}

function configuration({ url, username, password }: Feed): string {
  return `<?xml version="1.0" encoding="utf-8"?>
<configuration>
  <packageSources>
    <clear />
    <add key="${sourceName}" value="${url}" protocolVersion="3" allowInsecureConnections="true" />
  </packageSources>
  <fallbackPackageFolders><clear /></fallbackPackageFolders>
  <packageSourceCredentials>
    <${sourceName}>
      <add key="Username" value="${username}" />
      <add key="ClearTextPassword" value="${password}" />
      <add key="ValidAuthenticationTypes" value="basic" />
    </${sourceName}>
  </packageSourceCredentials>
</configuration>
`;
}
