import type { z } from 'zod';
import type { packageVersionDetails } from '../../../api/content/content-schemas.ts';
import { ago, copyable, countText, counted, lines, originOf, short, sizeHtml } from '../../framework/format.ts';
import { html, webAddress, type Html } from '../../framework/html.ts';
import { may } from '../../framework/layout.ts';
import { packagePath } from '../../framework/links.ts';
import type { PageCall } from '../../framework/page.ts';
import { facts } from '../../framework/table.ts';
import { readmeHtml } from '../../framework/readme.ts';
import { nugetConfigPart } from '../connect.ts';
import { exposedPath } from '../operations/exposed.ts';
import { marksOf } from './marks.ts';

type Details = z.input<typeof packageVersionDetails>;

/** Most dependencies that a page shows. */
const shownDependencies = 300;
const shownTags = 40;

/** The warnings about a version: unlisted, deprecated, vulnerable. */
export function warnings(details: Details): Html {
  const { listed, deprecation, vulnerabilities, is_advice_known: isKnown, upstream } = details;
  const withdrawnAt = details.withdrawn_at;
  return html`${
    withdrawnAt !== null &&
    html`<p class="warning">
      <strong>Withdrawn by the upstream on ${withdrawnAt.slice(0, 10)}.</strong> ${upstream} does not offer this version
      any more. Clients still get it from what is stored here.
    </p>`
  }
  ${
    !listed &&
    withdrawnAt === null &&
    html`<p class="warning">
      <strong>Unlisted.</strong> Searches do not show this version; clients can still restore it.
    </p>`
  }
  ${
    deprecation &&
    html`<p class="warning">
      <strong>Deprecated</strong
      >${deprecation.reasons.length > 0 && html` (${deprecation.reasons.map((each) => short(each, 60)).join(', ')})`}.
      ${deprecation.message && short(deprecation.message, 1000)}
      ${
        deprecation.alternate_package &&
        html`Use
          <a href="${packagePath(deprecation.alternate_package.id)}">${short(deprecation.alternate_package.id, 128)}</a>
          ${deprecation.alternate_package.range !== '*' && short(deprecation.alternate_package.range, 80)} instead.`
      }
    </p>`
  }
  ${
    vulnerabilities.length > 0 &&
    html`<div class="warning ${vulnerabilities.some(({ severity }) => isSevere(severity)) && 'severe'}">
      <strong>${counted(vulnerabilities.length, 'known vulnerability', 'known vulnerabilities')}:</strong>
      <ul>
        ${vulnerabilities.map(
          ({ severity, advisory_url: address }) =>
            html`<li>${severity}: ${external(address, short(address, 100))}</li>`,
        )}
      </ul>
    </div>`
  }
  ${
    !isKnown &&
    html`<p class="hint">
      ${upstream} did not say whether this version is deprecated or unlisted, because it did not answer in time.
    </p>`
  }`;
}

function isSevere(severity: string): boolean {
  return severity === 'high' || severity === 'critical';
}

/** A link to another site; only the text if the address is no web address. */
export function external(address: string | null, text: string): Html | string {
  const target = webAddress(address);
  return target === undefined ? text : html`<a href="${target}" rel="nofollow noopener">${text}</a>`;
}

/** The lines that install a version, for each client. */
export function installLines(details: Details, { urls, principal }: PageCall): Html {
  const { id, version } = details;
  const isTool = details.package_types.includes('DotnetTool');
  const isTemplate = details.package_types.includes('Template');
  const line = isTool
    ? `dotnet tool install ${id} --version ${version}`
    : isTemplate
      ? `dotnet new install ${id}::${version}`
      : `dotnet add package ${id} --version ${version}`;
  return html`<section>
    <h2>Install</h2>
    ${lines(line, 'the line that installs this version')}
    ${!isTool && !isTemplate && lines(`<PackageReference Include="${id}" Version="${version}" />`, 'the reference for a project file')}
    ${nugetConfigPart(`${urls.feed}/v3/index.json`, 'nuget.config with this feed', principal.kind !== 'anonymous')}
    ${
      !isTool &&
      !isTemplate &&
      html`<details>
        <summary>Symbols for debuggers</summary>
        ${lines(`${urls.feed}/v3/symbols`, 'the address of the symbol server')}
      </details>`
    }
  </section>`;
}

/** The README, or the description of a version without one. */
export async function readmeSection({ readme, is_readme_whole: isWhole, description }: Details): Promise<Html> {
  if (readme === null) {
    return html`<section>
      <h2>Description</h2>
      <p>${description ?? html`<span class="quiet">This version has no README and no description.</span>`}</p>
    </section>`;
  }
  return html`<section>
    <h2>README</h2>
    ${await readmeHtml(readme, isWhole)}
  </section>`;
}

export function notesSection({ release_notes: notes }: Details): Html | false {
  return (
    notes !== null &&
    html`<section>
      <h2>Release notes</h2>
      <p class="notes">${notes}</p>
    </section>`
  );
}

export function dependencySection({ dependency_groups: groups }: Details): Html {
  let left = shownDependencies;
  const all = groups.reduce((sum, { dependencies }) => sum + dependencies.length, 0);
  return html`<section>
    <h2>Dependencies</h2>
    ${all === 0 && html`<p class="quiet">None.</p>`}
    ${groups.map(({ target_framework: framework, dependencies }) => {
      const shown = dependencies.slice(0, left);
      left -= shown.length;
      return html`<h3>${framework === null ? 'Any framework' : short(framework, 80)}</h3>
        ${
          dependencies.length === 0
            ? html`<p class="quiet">No dependencies.</p>`
            : html`<ul>
                ${shown.map(
                  ({ id, range, ...marks }) =>
                    html`<li>
                      <a href="${packagePath(id)}">${short(id, 128)}</a> <span class="quiet">${short(range, 80)}</span>
                      ${marksOf(marks)}
                    </li>`,
                )}
              </ul>`
        }`;
    })}
    ${all > shownDependencies && html`<p class="hint">${countText(all - shownDependencies)} more are in the nuspec.</p>`}
  </section>`;
}

/** What identifies and describes a version, as a list. */
export function versionFacts(details: Details, { now, principal }: PageCall): Html {
  const frameworks = details.dependency_groups.flatMap((each) => each.target_framework ?? []);
  const licence = details.license_expression ?? details.license_file ?? details.license_url;
  const licenceLink = details.license_expression ? null : details.license_url;
  return facts(
    ['Origin', originOf(details)],
    ['Version', copyable(details.version)],
    ['Published', ago(details.published_at, now)],
    details.cached_at && ['Mirrored', ago(details.cached_at, now)],
    ['Size', sizeHtml(details.size_bytes)],
    ['Downloads', countText(details.download_count)],
    may(principal, 'admin') && [
      'Who pulled it',
      html`<a href="${exposedPath(`${details.id}@${details.version}`)}">Tokens and jobs</a>`,
    ],
    ['File', html`<a href="${packagePath(details.id, details.version)}/file">Download the .nupkg</a>`],
    details.authors && ['Authors', short(details.authors, 200)],
    frameworks.length > 0 && ['Frameworks', short(frameworks.join(', '), 400)],
    licence !== null && ['License', external(licenceLink, short(licence, 120))],
    details.requires_license_acceptance && ['', 'The license must be accepted.'],
    details.project_url && ['Project', external(details.project_url, short(details.project_url, 80))],
    details.repository_url && ['Source', external(details.repository_url, short(details.repository_url, 80))],
    details.repository_commit && ['Commit', copyable(short(details.repository_commit, 64))],
    details.tags.length > 0 && ['Tags', short(details.tags.slice(0, shownTags).join(', '), 400)],
    details.package_types.length > 0 && ['Type', short(details.package_types.join(', '), 120)],
    details.development_dependency && ['', 'Used only while building.'],
    details.min_client_version && ['Needs NuGet', short(details.min_client_version, 40)],
    details.sha512 && ['SHA-512', copyable(details.sha512, short(details.sha512, 16))],
  );
}
