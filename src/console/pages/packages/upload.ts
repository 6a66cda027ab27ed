import { publishedPackage } from '../../../api/framework/schemas.ts';
import { DomainError } from '../../../runtime/errors.ts';
import { Form } from '../../framework/form.ts';
import { html } from '../../framework/html.ts';
import type { Page, Redirect, RefusedForm, PageView } from '../../framework/page.ts';

/** Errors about the package, which are shown beside the field. */
const shown = new Set([
  'Invalid',
  'PackageInvalid',
  'AlreadyExists',
  'TooLarge',
  'NameDenied',
  'QuotaExceeded',
  'StorageFull',
  'Unsupported',
]);

/** The form that publishes a package from a file. */
export const uploadPage: Page = {
  path: '/upload',
  section: 'packages',
  action: 'write',
  show: ({ refused }) => Promise.resolve(uploadView(refused)),
  receive: async (call): Promise<PageView | Redirect | RefusedForm> => {
    try {
      const { id, version, warnings } = await call.receive('publishPackage', publishedPackage);
      const page = `/console/packages/${encodeURIComponent(id)}`;
      return warnings.length === 0
        ? { to: page, done: 'package-published' }
        : publishedView(id, version, page, warnings);
    } catch (error) {
      if (!(error instanceof DomainError) || !shown.has(error.name)) throw error;
      return { refused: new Form({}, { package: error.message }) };
    }
  },
};

function uploadView(form = new Form()): PageView {
  const body = html`<p>
      The package is checked and published as by <code>dotnet nuget push</code>. A version cannot be published twice.
    </p>
    <form method="post" enctype="multipart/form-data" class="panel narrow">
      <div class="drop" data-drop>
        ${form.file('package', 'Package', {
          attributes: html`accept=".nupkg"`,
          hint: html`A file that ends with <code>.nupkg</code>. Choose it, or drop it here.`,
        })}
      </div>
      <button class="primary">Publish</button>
    </form>`;
  return form.view('Upload a package', body);
}

function publishedView(id: string, version: string, page: string, warnings: readonly string[]): PageView {
  const body = html`<p role="status"><a href="${page}">${id} ${version}</a> is published, with warnings:</p>
    <ul>
      ${warnings.map((each) => html`<li class="warning">${each}</li>`)}
    </ul>`;
  return { title: 'The package is published', body, status: 201 };
}
